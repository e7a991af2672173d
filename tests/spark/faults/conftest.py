"""A scene for each fault test: its seed is printed, its kills are counted for the record."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from faulty import MakeScene, Scene


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[MakeScene]:
    """`scene(number)`: the seed is the number of the test and `make test-deep SEED=n`."""
    made: list[Scene] = []
    base = request.config.getoption("hypothesis_seed", None)

    def make(number: int, *, master: str = "local[2]") -> Scene:
        seed = int(base or 0) * 1000 + number
        made.append(Scene(tmp_path / "scene", seed, master=master))
        record_property("faults", (seed, asdict(made[0].counts)))  # plain: workers send it
        return made[0]

    yield make
    for one in made:
        print(asdict(one.counts))
        one.close()
