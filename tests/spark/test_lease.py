"""One driver at a time where there are no locks: leases, heartbeats, and who gives way."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from anabranch.errors import StateError
from anabranch.spark.checkpoint import lease
from anabranch.spark.checkpoint.lease import BEAT, EXPIRES, FOLDERS, DriverLease, Lease


@dataclass
class Shelf:
    """Texts by name, in memory."""

    uri: str = "s3a://bucket/ck"
    texts: dict[str, str] = field(default_factory=dict)

    def lines(self, name: str) -> list[str] | None:
        return self.texts[name].splitlines() if name in self.texts else None

    def write(self, name: str, text: str, *, replace: bool = False) -> None:
        assert replace
        self.texts[name] = text

    @property
    def leases(self) -> list[Lease]:
        return [Lease(**json.loads(text)) for _, text in sorted(self.texts.items())]


@dataclass
class Clock:
    now: float = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def none_held() -> Iterator[None]:
    lease._HELD.clear()
    yield
    lease._HELD.clear()


def elsewhere(clock: Clock, since: float = 0.0, **facts: object) -> str:
    """A heartbeat of a driver on another machine, `since` seconds ago."""
    began = clock.now - since
    known = {"holder": "other", "pid": 7, "host": "far", "since": began, "at": began}
    return json.dumps({**known, **facts})


def test_a_second_driver_is_rejected_with_the_name_of_the_first(
    shelf: Shelf, clock: Clock
) -> None:
    first = DriverLease(shelf, clock)
    clock.now += 20
    with pytest.raises(StateError, match=rf"process {os.getpid()} on .*wait 40 seconds"):
        DriverLease(shelf, clock)
    first.release()
    DriverLease(shelf, clock).release()


def test_heartbeats_take_turns_so_one_is_always_there(shelf: Shelf, clock: Clock) -> None:
    mine = DriverLease(shelf, clock)
    for beat in range(1, 5):
        clock.now += BEAT
        mine.renew()
        assert sorted(one.beat for one in shelf.leases) == [beat - 1, beat]
        assert set(shelf.texts) == set(FOLDERS)
    clock.now += EXPIRES - 1
    with pytest.raises(StateError, match="another merge works on this checkpoint"):
        DriverLease(shelf, clock)


def test_what_was_released_or_expired_holds_nothing(shelf: Shelf, clock: Clock) -> None:
    shelf.texts[FOLDERS[0]] = elsewhere(clock, beat=4)
    shelf.texts[FOLDERS[1]] = elsewhere(clock, beat=5, released=True)
    with pytest.raises(StateError, match="another merge works"):  # it is being released
        DriverLease(shelf, clock)
    shelf.texts[FOLDERS[0]] = elsewhere(clock, beat=6, released=True)
    DriverLease(shelf, clock).release()
    shelf.texts = {FOLDERS[0]: elsewhere(clock, since=EXPIRES)}
    DriverLease(shelf, clock).release()


def test_a_process_of_this_machine_that_is_gone_holds_nothing(
    shelf: Shelf, clock: Clock
) -> None:
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    here = {"pid": int(gone.stdout), "host": lease.socket.gethostname()}
    shelf.texts[FOLDERS[0]] = elsewhere(clock, **here)
    DriverLease(shelf, clock).release()


def test_of_two_that_start_at_once_the_earlier_goes_on(shelf: Shelf, clock: Clock) -> None:
    mine = DriverLease(shelf, clock)
    shelf.texts[FOLDERS[1]] = elsewhere(clock, since=-1)  # a second later, unseen by us
    clock.now += BEAT
    mine.renew()
    shelf.texts[FOLDERS[0]] = elsewhere(clock, since=BEAT + 5, at=clock.now)
    with pytest.raises(StateError, match="process 7 on far"):
        mine.renew()
    assert any(one.released for one in shelf.leases)


def test_a_driver_that_slept_longer_than_its_lease_gives_up(shelf: Shelf, clock: Clock) -> None:
    mine = DriverLease(shelf, clock)
    clock.now += EXPIRES
    with pytest.raises(StateError, match="did not renew its lease for 60 seconds"):
        mine.renew()


@pytest.mark.parametrize("beats", range(4))
def test_who_takes_over_leaves_no_heartbeat_that_looks_alive(
    shelf: Shelf, clock: Clock, beats: int
) -> None:
    first = DriverLease(shelf, clock)
    for _ in range(beats):
        first.renew()
    first.release()
    second = DriverLease(shelf, clock)
    second.renew()
    assert {one.holder for one in shelf.leases if one.holds(clock.now)} == {
        second._lease.holder
    }
    second.release()


def test_a_query_that_has_ended_here_holds_nothing(shelf: Shelf, clock: Clock) -> None:
    mine = DriverLease(shelf, clock)
    mine.is_active = lambda: False
    DriverLease(shelf, clock).release()


def test_spark_that_is_gone_does_not_hide_why_a_query_ended(
    shelf: Shelf, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = DriverLease(shelf, clock)

    def broken(*_: object, **__: object) -> None:
        message = "the JVM is gone"
        raise ConnectionError(message)

    monkeypatch.setattr(shelf, "write", broken)
    mine.release()
    clock.now += EXPIRES
    monkeypatch.undo()
    DriverLease(shelf, clock).release()
