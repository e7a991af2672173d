"""A black box for `anabranch windows infer`: an engine that only answers when it is run.

It reads one probe as JSON and prints the results as JSON.  This one pretends to be an engine
that Anabranch knows; put a call of your own system here.

    anabranch windows infer --command "python examples/window_engine.py streambase"
"""

import json
import sys

from anabranch import windows
from anabranch.errors import AnabranchError


def main() -> None:
    """Answer one probe."""
    probe = json.load(sys.stdin)
    tuples = [
        windows.Stable(one["stable"])
        if "stable" in one
        else windows.Arrival(one["time"], one["value"], batch=one["batch"])
        for one in probe["tuples"]
    ]
    name = sys.argv[1] if len(sys.argv) > 1 else "streambase"
    try:
        found = windows.predict(name, probe["size"], probe["slide"], tuples, probe["agg"])
    except AnabranchError:
        print("null")  # it takes no such query
        return
    print(json.dumps([{"value": one.value, "step": one.step} for one in found.results]))


if __name__ == "__main__":
    main()
