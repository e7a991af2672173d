"""What fault tests share: scenes whose seeds are printed and kills recorded, and a cluster."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from faulty import MakeScene, Scene
from standalone import Cluster


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> Iterator[MakeScene]:
    """`scene(number)`: the seed is the number of the test and `make test-deep SEED=n`."""
    made: list[Scene] = []
    base = request.config.getoption("hypothesis_seed", None)

    def make(number: int, *, master: str = "local[2]", kind: type[Scene] = Scene) -> Scene:
        seed = int(base or 0) * 1000 + number
        made.append(kind(tmp_path / "scene", seed, master=master))
        # Plain values, which workers of pytest can send; they count until the test ends.
        record_property("faults", (seed, vars(made[0].counts)))
        return made[0]

    yield make
    for one in made:
        print(asdict(one.counts))
        one.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A standalone cluster of two workers."""
    made = Cluster(tmp_path / "cluster")
    try:
        made.add_worker()
        made.add_worker()
        yield made
    finally:
        made.close()
