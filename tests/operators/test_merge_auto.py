"""A merge of streams that declare nothing: R3 while that is enough, then R4, nothing lost."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, judge_prefix, runs
from merge_r4_driver import KernelR4, ReferenceR4, quarrels_r4
from policy_kernel_driver import time_of

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import to_elements
from anabranch.errors import SchemaError, StateError
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.merge import auto
from anabranch.operators.merge.auto import AutoState
from anabranch.operators.merge.contract import Arrival, Reason
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_carry import from_r3, meets_duplicate
from anabranch.operators.merge.r4_state import R4State
from anabranch.testing.strategies import interleavings, replicas

GRANULARITIES = st.sampled_from(["batch", "element"])

LAGS = st.sampled_from([0, 0, 1, 4])


@dataclass
class Auto(KernelR4):
    """The merge that finds its case."""

    def __post_init__(self) -> None:
        policy = Policy(
            shrink_only=self.shrink_only, stable_lag=self.stable_lag, promote=self.promote
        )
        self.state = AutoState.empty(SCHEMA, policy=policy)

    def detach(self, name: str) -> None:
        self.output += to_elements(self.state.detach(name).output)
        self.state.check()

    def advance(self, arrivals):
        return auto.step(self.state, arrivals, granularity=self.granularity)

    def restart(self) -> None:
        self.state = AutoState.from_bytes(self.state.to_bytes(), SCHEMA)
        self.state.check()


def steps(data, arrived):
    start = 0
    for stop in data.draw(cuts(len(arrived))):
        yield stop, runs(arrived[start:stop])
        start = stop


@pytest.mark.parametrize("case", [MergeCase.R3, MergeCase.R4])
@given(st.data())
def test_auto_has_the_history_whatever_the_case(case, data):
    streams = data.draw(replicas(case=case))
    arrived = data.draw(interleavings(streams))
    lag, promote = data.draw(st.sampled_from([0, 0, 3])), data.draw(st.booleans())
    merge = Auto(granularity=data.draw(GRANULARITIES), stable_lag=lag, promote=promote)
    for stop, some in steps(data, arrived):
        merge.step(some)
        if stop and not lag:
            judge_prefix(merge.output, arrived[:stop], len(streams))
        if data.draw(st.booleans()):
            merge.restart()
    assert History.of(merge.output) == History.of(streams[0])
    assert merge.live == 0
    assert Reason.SECOND_INSERT not in merge.reasons
    if case is MergeCase.R3:
        assert merge.state.case is MergeCase.R3


@given(st.data())
def test_looking_at_suspects_alone_finds_every_duplicate(data):
    case = data.draw(st.sampled_from([MergeCase.R3, MergeCase.R4]))
    arrived = data.draw(interleavings(data.draw(replicas(case=case))))
    state = AutoState.empty(SCHEMA)
    for _, some in steps(data, arrived):
        arrivals = [Arrival(name, batch_of(elements)) for name, elements in some]
        if state.case is MergeCase.R4:
            break
        found = meets_duplicate(state.current, auto.to_look_at(state, arrivals))
        assert found == meets_duplicate(state.current, arrivals)
        auto.step(state, arrivals)
        if data.draw(st.booleans()):
            state = AutoState.from_bytes(state.to_bytes(), SCHEMA)


@given(st.data())
def test_auto_by_element_says_what_r4_says_and_gives_the_same_reasons(data):
    streams = data.draw(replicas(case=data.draw(st.sampled_from([MergeCase.R3, MergeCase.R4]))))
    arrived = data.draw(interleavings(streams))
    choices = {"stable_lag": data.draw(LAGS), "promote": data.draw(st.booleans())}
    merge, reference = Auto(granularity="element", **choices), ReferenceR4(**choices)
    for name, elements in [(f"r{number}", []) for number in range(len(streams))]:
        merge.step([(name, elements)])
        reference.attach(name)
    for _, some in steps(data, arrived):
        merge.step(some)
        for name, elements in some:
            reference.take(name, elements)
        assert merge.output == reference.output
        assert merge.reasons == reference.reasons


@given(st.data())
def test_auto_by_element_says_what_r4_says_whoever_comes_and_goes(data):
    """Joining, leaving and promoted replicas of one history: R3's rules are those of R4."""
    case = data.draw(st.sampled_from([MergeCase.R3, MergeCase.R4]))
    streams = data.draw(replicas(case=case, min_inputs=3, phantoms=0))
    arrived = data.draw(interleavings(streams))
    choices = {"stable_lag": data.draw(LAGS), "promote": True}
    merge, reference = Auto(granularity="element", **choices), ReferenceR4(**choices)
    numbers = {}
    for number in range(3):
        change_members(data, (merge, reference), numbers, f"r{number}")
    for _, came in steps(data, arrived):
        some = [(name, elements) for name, elements in came if name in numbers]
        merge.step(some)
        for name, elements in some:
            reference.take(name, elements)
        assert merge.output == reference.output
        assert merge.reasons == reference.reasons
        name = data.draw(st.sampled_from(["r0", "r1", "r2"]))
        if data.draw(st.booleans()):
            change_members(data, (merge, reference), numbers, name)
        elif name in numbers and data.draw(st.booleans()):
            del numbers[name]
            for one in (merge, reference):
                one.detach(name)
        if data.draw(st.booleans()):
            merge.restart()
        assert merge.output == reference.output
        stretches = [(time_of(a), time_of(b), c) for a, b, c in merge.state.stretches]
        assert stretches == list(reference.merge.stretches)


def change_members(data, merges, numbers, name):
    guarantee = data.draw(st.sampled_from([None, None, 2, 5, FOREVER]))
    numbers[name] = data.draw(st.integers(1, 3)) + numbers.get(name, 0)
    if name in merges[1].merge.replicas:
        numbers[name] = merges[1].merge.replicas[name].key[1] + 1
    for merge in merges:
        merge.attach(name, guarantee, numbers[name])


@given(st.data())
def test_auto_is_valid_and_has_the_history_of_r4_whatever_comes(data):
    arrived = data.draw(quarrels_r4())
    merge, reference = Auto(granularity="element"), ReferenceR4()
    for _, some in steps(data, arrived):
        merge.step(some)
        for name, elements in some:
            reference.take(name, elements)
        assert replay(merge.output) == replay(reference.output)
        assert replay(merge.output).violations == ()
    assert Reason.SECOND_INSERT not in merge.reasons


def test_the_step_that_meets_a_duplicate_is_the_first_of_r4():
    merge = Auto()
    merge.attach("late", guarantee=9)
    merge.take("1", parse("insert a 1..9; insert b 2..3; insert c 3..9; adjust c 3..9->3"))
    merge.take("2", parse("insert a 1..5; stable 2; insert d 6..9"))
    assert merge.state.case is MergeCase.R3
    merge.take("1", parse("insert d 6..9; stable 4; insert d 6..7; stable 5"))
    assert merge.state.case is MergeCase.R4
    assert [(r.name, r.joined) for r in merge.state.replicas] == [
        ("late", False),
        ("1", True),
        ("2", True),
    ]
    merge.restart()
    merge.take("2", parse("insert d 6..7; stable forever"))
    assert History.of(merge.output) == History.of(
        parse("insert a 1..5; insert b 2..3; insert d 6..9; insert d 6..7")
    )
    assert Reason.SECOND_INSERT not in merge.reasons
    assert merge.state.frontier == FOREVER_UNITS
    merge.detach("2")
    merge.state.attach("3")
    assert merge.state.members.names == ["late", "1", "3"]
    assert merge.state.conflicts == 0


@pytest.mark.parametrize(
    "text",
    [
        "insert a 1..3; adjust a 1..3->1; insert a 1..3",
        "insert a 1..3; adjust a 1..3->4; adjust a 1..4->1; insert a 1..5",
        "insert a 1..3; insert a 1..1; insert a 2..3; insert b 1..3",
        "insert a 1..3; stable 2; stable 3; adjust a 1..3->9",
    ],
)
def test_what_r3_can_take_is_not_taken_for_a_duplicate(text):
    for cut in range(len(parse(text)) + 1):
        merge = Auto()
        merge.take("1", parse(text)[:cut])
        merge.take("1", parse(text)[cut:])
        merge.take("2", parse(text))
        assert merge.state.case is MergeCase.R3


def test_an_attachment_that_replays_is_no_duplicate_and_a_redelivery_neither():
    merge = Auto()
    merge.take("1", parse("insert a 1..3"))
    merge.attach("1", attachment=2)
    merge.take("1", parse("insert a 1..3"))
    assert merge.state.case is MergeCase.R3
    state = AutoState.empty(SCHEMA)
    batch = batch_of(parse("insert a 1..3; insert a 1..3"), seq=[4, 4])
    auto.step(state, [Arrival("1", batch)])
    assert state.case is MergeCase.R3


def test_a_seq_that_an_earlier_step_consumed_is_no_duplicate():
    state = AutoState.empty(SCHEMA)
    for _ in range(2):
        auto.step(state, [Arrival("1", batch_of(parse("insert a 1..3"), seq=[4]))])
    assert state.case is MergeCase.R3


def test_shrink_only_is_r4_from_the_start():
    policy = Policy(shrink_only=True)
    assert AutoState.empty(SCHEMA, policy=policy).case is MergeCase.R4
    assert AutoState.empty(SCHEMA).schema.payload == SCHEMA.payload


def test_auto_reads_either_state_and_refuses_others():
    for state in (R3State.empty(SCHEMA), R4State.empty(SCHEMA)):
        again = AutoState.from_bytes(state.to_bytes(), SCHEMA)
        assert type(again.current) is type(state)
    with pytest.raises(StateError):
        AutoState.from_bytes(b"something else", SCHEMA)


def test_auto_refuses_other_columns_by_the_words_of_merge():
    other = batch_of([])
    other = type(other)(
        type(SCHEMA)(SCHEMA.time, SCHEMA.payload.with_metadata(None).append(SCHEMA.payload[0])),
        other.kind,
        other.start,
        other.end,
        other.old_end,
        other.payload,
    )
    with pytest.raises(SchemaError, match="replica 'x' has"):
        auto.step(AutoState.empty(SCHEMA), [Arrival("x", other)])


def test_carried_over_nodes_and_names_are_those_of_r3():
    merge = Auto()
    merge.attach("slow")
    merge.take("1", parse("insert a 1..9; insert b 2..3; insert c 5..6; stable 4"))
    state = from_r3(merge.state.current)
    state.check()
    assert (state.live, len(state.settled), state.frontier) == (2, 1, 4)
