"""Draws the pictures of the README and the guides again: `make pictures`.

Each is drawn from the data of the page it is on; `tests/pictures/test_flow.py` compares the
committed files with what this draws.
"""

from pathlib import Path
from typing import Final

from anabranch.model import Event
from anabranch.pictures.flow import draw_flow

ROOT: Final = Path(__file__).parents[1]


def flow() -> str:
    """The picture of the README: the orders of its first program."""
    tea, rice = Event("o1 tea", 1, 11), Event("o2 rice", 2, 12)
    figs, salt = Event("o3 figs", 3, 13), Event("o4 salt", 4, 14)
    copies = {"east": [tea, rice, salt], "west": [rice, tea, figs]}
    return draw_flow(copies, title="Two copies of one feed of orders, merged")


PICTURES: Final = {"docs/pictures/flow.svg": flow}
"""By file, what draws it."""

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(draw())
        print(name)
