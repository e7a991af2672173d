"""`infer`: the SECRET settings of an engine that can only be run.

All settings of a `Space` are candidates; each probe rules out those that would have answered
otherwise, and those that have no answer to it although the engine accepted it.  The next probe
is the one, of some generated, that splits those left best.

A refusal rules out no setting, not even those that have an answer: an engine, or the program
that calls it, may refuse for reasons outside the model (Spark refuses a slide above the size).
It determines `gaps`, and which probes are useless.

1. Tuples in order and batches of one time, on the coarse candidates.
2. Late tuples and mixed batches, on all that the coarse ones left stand for.
3. When no generated probe splits what is left, probes by chance confirm it; one that rules
   out some sends the search back to 2.

The remaining settings agree on all inputs that were searched; that is no proof.  If
nothing remains, no setting of the space fits, and the last probe shows it.

Each probe is run `repeats` times, the first one at least twice.  Where two runs differ, the
search starts again: each probe is run until one answer leads, and that counts if more than half
of its runs agree.  What differed is reported, and nothing is called settled.  Before nothing
is left, all probes are asked again, so that no single run decides that.

Papers: SECRET B.3; errata S12 and the list of what no probe can distinguish.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Literal

from anabranch.errors import InputError, UsageError
from anabranch.windows.aggregate import aggregate
from anabranch.windows.engine import Engine
from anabranch.windows.inference.answers import Command, Run, as_run, ask, fields_of
from anabranch.windows.inference.asked import (
    Asked,
    Disagreement,
    Reply,
    Unanswered,
    contradicting,
    counted,
    disagreement,
    unanswered,
)
from anabranch.windows.inference.candidates import PARAMETERS, Space, profiles_like
from anabranch.windows.inference.probes import (
    Kinds,
    Probe,
    Seen,
    Shown,
    answer_of,
    is_irregular,
    make_probe,
    predicted,
    regular,
)
from anabranch.windows.inference.recorded import Recorded, Silent, agreeing
from anabranch.windows.inference.result import (
    Inference,
    Parameter,
    distinguished,
    parameter,
    seen_of,
    values_of,
)
from anabranch.windows.stream import whole
from anabranch.windows.trace import Query

# Of few inputs the best for many engines; once none splits, many inputs for few engines.
_POOL, _SAMPLE = 16, 48
_WIDE_POOL, _SMALL_SAMPLE = 48, 16
_NOISY_RUNS = 5
_LEAD = 4
_MOST_RUNS = 21
_TRIES = 1_000


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to search."""

    run: Run
    asks: bool
    """Whether there is an engine to run, or recordings alone."""
    recorded: tuple[tuple[Probe, tuple[Shown, ...]], ...]
    space: Space
    agg: str
    kinds: Kinds
    late: bool
    confirm: int
    search: int
    most: int
    seed: int


class _Noisy(Exception):  # noqa: N818
    """The engine gave two answers to one probe."""

    def __init__(self, found: Disagreement) -> None:
        super().__init__(str(found))
        self.found = found


@dataclass(slots=True)
class _Search:
    """A search at work."""

    plan: _Plan
    repeats: int
    left: list[Engine]
    kinds: Kinds
    random: Random
    fields: frozenset[str] = frozenset(("value", "start", "end", "step"))
    asked: list[Asked] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    runs: int = 0
    searched: int = 0
    refused: set[tuple[int, int]] = field(default_factory=set)
    taken: set[tuple[int, int]] = field(default_factory=set)
    gaps: bool = True

    def spent(self) -> bool:
        return self.runs >= self.plan.most or not self.left

    def confirmed(self) -> int:
        return sum(one.confirms for one in self.asked)

    def make(self) -> Probe:
        """A probe by chance that the engine takes, as far as we know."""
        for _ in range(_TRIES):
            probe = make_probe(self.random, self.kinds)
            if not self._in_vain(probe):
                return probe
        message = (
            "the engine takes none of the queries that probes make: sizes from 1 to 6 and "
            "slides from 1 on; scale time in `run` if its unit is coarser"
        )
        raise InputError(message)

    def _in_vain(self, probe: Probe) -> bool:
        """Whether the engine has refused such a query before."""
        query = (probe.size, probe.slide)
        # Proposed to a person, since no engine can be run: avoid what many engines reject.
        gaps = self.gaps and self.plan.asks
        if query in self.refused or (probe.slide > probe.size and not gaps):
            return True
        sizes = sum(slide == probe.slide for _, slide in self.refused)
        return sizes > 1 and all(slide != probe.slide for _, slide in self.taken)

    def answer(self, engine: Engine, probe: Probe) -> Seen | None:
        found = predicted(engine, probe, self.plan.agg, self.plan.kinds.by)
        return None if found is None else answer_of(found, self.fields)

    def split(self) -> None:
        """Ask what splits those left, until nothing found does."""
        while not self.spent() and (probe := self.splitting()) is not None:
            self.put(probe, "split")

    def splitting(self) -> Probe | None:
        """A probe that splits those left best, of some; None if none was found to."""
        self.searched = 0
        while self.searched < self.plan.search and len(self.left) > 1:
            sample = self._sample(_SMALL_SAMPLE if self.searched else _SAMPLE)
            pool = [self.make() for _ in range(_WIDE_POOL if self.searched else _POOL)]
            worth = [self._left_after(probe, sample) for probe in pool]
            best = min(range(len(pool)), key=lambda n: (worth[n], len(pool[n].tuples)))
            if worth[best] >= len(sample):
                self.searched += len(pool)
                continue
            return pool[best]
        return None

    def _sample(self, size: int) -> list[Engine]:
        return (
            list(self.left) if len(self.left) <= size else self.random.sample(self.left, size)
        )

    def _left_after(self, probe: Probe, sample: Sequence[Engine]) -> float:
        """How many of the sample a probe leaves, on average if each is as likely the engine.

        One without an answer would refuse the probe, and a refusal leaves all.
        """
        answers = Counter(self.answer(engine, probe) for engine in sample)
        silent = answers.pop(None, 0)
        return silent + sum(count * count for count in answers.values()) / len(sample)

    def hold_against(self, probe: Probe, shown: tuple[Shown, ...]) -> None:
        """Rule out those that have no answer to a recording, or another one."""
        before = list(self.left)
        self.fields &= fields_of(shown) if shown else self.fields
        self.left = agreeing(before, probe, shown, self.fields, self._query(probe))
        self._note(before, probe, "recorded", shown)

    def _note(
        self,
        before: list[Engine],
        probe: Probe,
        purpose: Literal["split", "confirm", "recorded"],
        answer: Reply,
        *,
        runs: int = 1,
        agreeing: int = 1,
    ) -> None:
        """Record a probe, and which of those before it ruled out for want of an answer."""
        silent: tuple[Unanswered, ...] = ()
        if len(self.left) < len(before):
            silent = unanswered(before, Silent(probe, self._query(probe)).why)
        asked = Asked(
            number=len(self.asked) + 1,
            probe=probe,
            purpose=purpose,
            answer=answer,
            runs=runs,
            agreeing=agreeing,
            before=len(before),
            after=len(self.left),
            narrowed=tuple(distinguished(before, self.left)),
            unanswered=silent,
        )
        self.asked.append(asked)

    def _query(self, probe: Probe) -> Query:
        return Query(probe.size, probe.slide, self.plan.agg, self.plan.kinds.by)

    def put(self, probe: Probe, purpose: Literal["split", "confirm"]) -> None:
        """Ask the engine, and rule out those that have no answer, or another one."""
        number = len(self.asked) + 1
        answers = self._answers(probe, number)
        most, agreeing = self._counted(answers)[0]
        before, decided = list(self.left), 2 * agreeing > len(answers)
        if most is None and decided:
            self._note_refusal(probe)
        elif most is not None and decided:
            self.taken.add((probe.size, probe.slide))
            self._rule_out(probe, most, number)
        self._note(before, probe, purpose, most, runs=len(answers), agreeing=agreeing)

    def _answers(self, probe: Probe, number: int) -> list[Reply]:
        """As many as are needed: one answer must lead the next by some if they differ."""
        answers: list[Reply] = []
        least = self.repeats if self.asked else max(2, self.repeats)
        while True:
            answers.append(ask(self.plan.run, probe, number))
            self.runs += 1
            found = self._counted(answers)
            differ = self._differ(probe, found)
            clear = len(found) == 1 or found[0][1] - found[1][1] >= _LEAD
            if len(answers) >= least and (clear or len(answers) >= _MOST_RUNS):
                self.disagreements += [differ] if differ is not None else []
                return answers

    def _differ(self, probe: Probe, found: Sequence[tuple[Reply, int]]) -> Disagreement | None:
        """What differs; raises if each probe is asked too few times to judge that."""
        differ = disagreement(probe, found)
        if differ is not None and self.repeats < _NOISY_RUNS:
            raise _Noisy(differ)
        return differ

    def _counted(self, answers: Sequence[Reply]) -> list[tuple[Reply, int]]:
        """Each different answer and how often it came, the most frequent first."""
        for one in answers:
            self.fields &= fields_of(one) if one else self.fields
        return counted(answers, self.fields)

    def _note_refusal(self, probe: Probe) -> None:
        """Not to ask in vain again: slides above the size, late tuples, or just this query."""
        query = (probe.size, probe.slide)
        if is_irregular(probe) and query not in self.taken:
            plain = regular(probe)
            self.runs += 1
            if ask(self.plan.run, plain, len(self.asked) + 1) is not None:
                self.taken.add(query)
        if query in self.taken:
            self.kinds = replace(self.kinds, late=False)
        elif probe.slide > probe.size:
            self.gaps = False
        else:
            self.refused.add(query)

    def _rule_out(self, probe: Probe, shown: tuple[Shown, ...], number: int) -> None:
        wanted = answer_of(shown, self.fields)
        # None, no answer to what the engine accepted, is as wrong as another answer.
        left = [one for one in self.left if self.answer(one, probe) == wanted]
        if not left and self.repeats < _NOISY_RUNS:
            self._require_same_answers(probe, shown, number)
        self.left = left

    def _require_same_answers(
        self, probe: Probe, shown: tuple[Shown, ...] | None, number: int
    ) -> None:
        """Ask all again before nothing fits: one chance answer may have ruled out the true."""
        earlier = [
            (one.probe, one.answer, one.number)
            for one in self.asked
            if one.purpose != "recorded"
        ]
        again = [(probe, shown, number)] * (_NOISY_RUNS - 1)
        for asked, answer, place in again + earlier:
            found = ask(self.plan.run, asked, place)
            self.runs += 1
            self._differ(asked, self._counted((answer, found)))


def infer(
    run: Run | Command | Sequence[str] | None = None,
    *,
    recorded: Iterable[Recorded] = (),
    agg: str = "sum",
    by: Literal["time", "rows"] = "time",
    space: Space | None = None,
    batches: bool = True,
    late: bool = True,
    stables: bool = False,
    confirm: int = 8,
    search: int = 256,
    most: int = 200,
    repeats: int = 2,
    timeout: float = 60.0,
    seed: int = 0,
) -> Inference:
    """The settings of the engine that `run` runs (see `anabranch.windows.inference.answers`).

    `recorded` are saved runs: they count as answers.  Without `run` there
    are only those, and `next_probe` of what is found is a run that would narrow them down.
    `agg` and `by` are what its query computes and how its windows count.  `batches`, `late`
    and `stables` are what it accepts: batches of several tuples, tuples out of order,
    stables.  The search for a probe that splits what is left ends after `search` inputs in
    vain; `confirm` probes by chance follow.  At most about `most` runs are made.

    Each probe is run `repeats` times.  If the runs of one differ, `disagreements` of what is
    found has them, no parameter is settled, and probes are run more often.
    """
    aggregate(agg)
    if by not in {"time", "rows"}:
        message = f"by is {by!r}; expected time or rows"
        raise UsageError(message)
    whole(confirm, "confirm", 0)
    for value, name in ((search, "search"), (most, "most"), (repeats, "repeats")):
        whole(value, name, 1)
    plan = _Plan(
        run=as_run(run, agg, timeout),
        asks=run is not None,
        recorded=tuple(one.read(n) for n, one in enumerate(recorded, start=1)),
        space=space or Space(),
        agg=agg,
        kinds=Kinds(batches, late=False, stables=stables, by=by),
        late=late and by == "time",
        confirm=confirm,
        search=search,
        most=most,
        seed=seed,
    )
    if not plan.asks and not plan.recorded:
        message = "there is nothing to infer from; give run=, an engine, or recorded=, its runs"
        raise UsageError(message)
    known = contradicting(plan.recorded)
    try:
        return _search(plan, repeats, known)
    except _Noisy as noisy:
        # The second search may not see it again, so it is handed on.
        return _search(plan, max(_NOISY_RUNS, repeats), (*known, noisy.found))


def _search(plan: _Plan, repeats: int, known: tuple[Disagreement, ...]) -> Inference:
    coarse = plan.space.coarse(plan.kinds.by)
    search = _Search(plan, repeats, coarse, plan.kinds, Random(plan.seed))
    search.disagreements += known
    plain = [one for one in plan.recorded if not is_irregular(one[0])]
    for one in plain:
        search.hold_against(*one)
    if plan.asks and not search.spent():
        # Before the first answer the fields of the results are unknown, so it is not chosen.
        search.put(search.make(), "split")
        search.split()
    search.left = [fine for one in search.left for fine in plan.space.fine(one)]
    search.kinds = replace(plan.kinds, late=plan.late)
    for one in plan.recorded:
        if one not in plain:
            search.hold_against(*one)
    if not plan.asks:
        return _inference(search, search.splitting())
    search.split()
    while search.confirmed() < plan.confirm and not search.spent():
        before = len(search.left)
        search.put(search.make(), "confirm")
        if 0 < len(search.left) < before:
            search.split()
    return _inference(search)


@lru_cache(maxsize=8)
def _possible(space: Space, by: str) -> dict[str, list[object]]:
    return values_of([fine for one in space.coarse(by) for fine in space.fine(one)])


def _each_once(found: Sequence[Disagreement]) -> Iterator[Disagreement]:
    """Each probe once, as the second search found it: that has more runs than the first."""
    for place, one in enumerate(found, start=1):
        if all(one.probe != later.probe for later in found[place:]):
            yield one


def _inference(search: _Search, next_probe: Probe | None = None) -> Inference:
    plan, left = search.plan, search.left
    possible, found = _possible(plan.space, plan.kinds.by), values_of(left)
    noisy = bool(search.disagreements)
    parameters = [
        parameter(name, found[name], possible[name], search.asked, noisy=noisy)
        for name in PARAMETERS
    ]
    gaps = tuple(
        one.number for one in search.asked if one.probe.slide > one.probe.size and one.decided
    )
    if gaps:
        known = () if search.gaps and not left else (search.gaps,)
        one_left = seen_of(known, (False, True), noisy=noisy)
        parameters.append(Parameter("gaps", known, one_left, gaps, 1.0, (False, True)))
    return Inference(
        engines=tuple(left),
        parameters=tuple(parameters),
        like=tuple(dict.fromkeys(name for one in left for name in profiles_like(one))),
        asked=tuple(search.asked),
        searched=search.searched,
        refuted_by=None if left else search.asked[-1],
        complete=not left or not plan.asks or search.confirmed() >= plan.confirm,
        space=plan.space,
        next_probe=next_probe,
        agg=plan.agg,
        by=plan.kinds.by,
        compared=search.fields,
        disagreements=tuple(_each_once(search.disagreements)),
    )
