"""Operations per element of R0 to R4 and R3-, beside the paper's Table IV; free of noise.

    make bench FIG=merge_counts

In steady state, for two numbers of live events and two of inputs: a cost that followed the
number of live events would be a hundred times greater in the second column of each pair.
"""

from merging.clock import machine, report
from merging.operations import PAPER, per_element

LIVE = (100, 10_000)
INPUTS = (2, 8)


def main() -> None:
    facts, rows = machine(), {}
    for name, paper in PAPER.items():
        # R3- looks at every live event on every stable: a hundred times as many take too long.
        most = LIVE[1] if name != "R3-" else LIVE[1] // 10
        rows[name] = {
            "paper": paper,
            "measured": [
                {"live": live, "inputs": inputs, **per_element(name, live=live, inputs=inputs)}
                for inputs in INPUTS
                for live in (LIVE[0], most)
            ],
        }
    report("merge_counts", {"machine": facts, "cases": rows})
    head = f"{'case':<5}{'live':>7}{'inputs':>7}{'probes':>8}{'visits':>8}{'queue':>7}  paper"
    print(head)
    for name, row in rows.items():
        for one in row["measured"]:
            numbers = f"{one['live']:>7}{one['inputs']:>7}{one['probes']:>8}{one['visits']:>8}"
            print(f"{name:<5}{numbers}{one['queue']:>7}  stable: {row['paper']['stable']}")


if __name__ == "__main__":
    main()
