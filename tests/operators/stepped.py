"""What tests of single steps on an engine share: a notation for arrivals, and comparisons.

Reference and kernel are compared element by element and reason by reason.  Lanes report
buckets, and the order within a step is theirs: there the same elements must come out, with the
same meaning, and the buckets must be those of the reasons.
"""

from collections import Counter
from collections.abc import Sequence

from anabranch.model.history import History, replay
from anabranch.model.notation import parse, parse_events
from anabranch.operators.contract import Reason
from anabranch.testing import Engine


def feed(engine: Engine, *arrivals: str) -> None:
    """`2: insert a 1..3` is an element of replica 2, one step each."""
    for arrival in arrivals:
        name, text = arrival.split(":")
        for element in parse(text):
            engine.push(name.strip(), [element])
            engine.cut()


def events(text: str) -> History:
    return History.from_events(parse_events(text))


def emits(engine: Engine, text: str, *, after: int = 0) -> None:
    """The output, but for its first elements, is this."""
    made, drawn = list(engine.output[after:]), parse(text)
    if engine.reasons is not None:
        assert made == drawn
        return
    assert sorted(map(str, made)) == sorted(map(str, drawn))
    assert replay(engine.output) == replay([*engine.output[:after], *drawn])


def reasons_are(engine: Engine, *groups: str) -> None:
    """The reasons of all elements, in the order of pushing; names are separated by spaces."""
    names = " ".join(groups).split()
    if engine.reasons is not None:
        assert list(engine.reasons) == names
    found: Counter[str] = Counter()
    for buckets in engine.account.values():
        found.update(buckets)
    assert +found == Counter(Reason[name].bucket.word for name in names)


def gaps_are(engine: Engine, gaps: Sequence[tuple[str, int, str]]) -> None:
    """The identities that deciding replicas never mentioned; lanes only count them."""
    assert engine.gaps is None or list(engine.gaps) == list(gaps)
    assert engine.counts["missing"] == len(gaps)


def counted(engine: Engine, *names: str) -> list[int]:
    return [engine.counts[name] for name in names]
