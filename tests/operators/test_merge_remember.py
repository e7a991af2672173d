"""`remember`: how far behind the frontier the copies of silent replicas are recognised."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import cuts, runs, time_of

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Insert, Stable
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.by_key.keyed import KeyedOperator
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Await,
    Bucket,
    Detach,
    Inputs,
    PassOver,
    Reason,
)
from anabranch.operators.key import Key
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.reference.r4 import MergeR4
from anabranch.operators.route import Route
from anabranch.operators.state.final_names import END
from anabranch.testing.strategies import (
    conflicting_arrivals,
    histories,
    interleavings,
    presentations,
)

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
REFERENCES = {"r3": MergeR3, "r4": MergeR4}
POLICIES = ("remember=0", "remember=3", "gaps=true,remember=2", "gaps=true,wait=2,remember=1",
            "gaps=true,wait=0,remember=6")  # fmt: skip
SILENT = [PassOver("r0"), Await("r0"), Detach("r2"), Attach("r2", 2)]
"""What a run does between elements; the last two at most once, in this order."""


def operator(case, policy):
    return MergeOperator(SCHEMA, MergeCase(case), Policy.parse(policy))


def take(state, name, elements, **more):
    """One step of a replica: the reasons of its elements, and what came out."""
    if isinstance(elements, str):
        elements = parse(elements)
    result = state.step(Inputs((Arrival(name, from_elements(elements, SCHEMA), **more),)))
    state.check()
    return [REASONS[code] for code in result.reasons[0]], to_elements(result.output)


def enter(reference, entry):
    """The same control entry for a reference."""
    if isinstance(entry, PassOver):
        return reference.pass_over(entry.input)
    if isinstance(entry, Await):
        return reference.await_again(entry.input)
    if isinstance(entry, Detach):
        return reference.detach(entry.input)
    return reference.attach(entry.input, attachment=entry.attachment)


@pytest.mark.parametrize("case", ["r3", "r4"])
@given(st.data(), st.sampled_from(POLICIES), st.booleans())
def test_the_kernel_remembers_what_the_reference_does(case, data, policy, inferred):
    """In steps of one element, saved and restored between any two of them."""
    made = operator(case, policy)
    kernel, reference = made.empty(), REFERENCES[case](policy=Policy.parse(policy))
    for number in range(3):
        kernel.step(Inputs(control=(Attach(f"r{number}"),)))
        reference.attach(f"r{number}")
    left = list(SILENT)
    numbers = {"r2": 1}
    for number, element in data.draw(conflicting_arrivals()):
        name = f"r{number}"
        if left and data.draw(st.integers(0, 3)) == 0:
            entry = left.pop(0)
            output = to_elements(kernel.step(Inputs(control=(entry,))).output)
            assert output == list(enter(reference, entry).output)
            numbers["r2"] = entry.attachment if isinstance(entry, Attach) else numbers["r2"]
            kernel = made.from_parts(kernel.parts().written)
        if name not in reference.replicas:
            continue
        more = {"attachment": numbers.get(name, 1), "inferred": inferred}
        outcome = reference.push(name, element, inferred=inferred)
        (reason,), output = take(kernel, name, [element], **more)
        assert (reason, output) == (outcome.reason, list(outcome.output))
        assert len(kernel.final_names) == len(reference.settled)
        assert time_of(kernel.forgotten) == reference.forgotten
        if reference.frontier not in (NEVER, FOREVER):
            behind = kernel.frontier - kernel.policy.remember
            assert (kernel.final_names.all()[:, END] >= behind).all()


@pytest.mark.parametrize("case", ["r3", "r4"])
@given(st.data(), st.sampled_from(["", "gaps=true,", "gaps=true,wait=1,"]))
def test_remember_changes_no_history_and_loses_no_row(case, data, others):
    """Any cut into steps: what is forgotten is late, and nothing else becomes late."""
    truth = data.draw(histories())
    streams = [data.draw(presentations(truth, gaps=bool(others))) for _ in range(2)]
    arrived = data.draw(interleavings(streams))
    remember = data.draw(st.integers(0, 4))
    ends, silent = data.draw(cuts(len(arrived))), data.draw(st.sampled_from([None, 1, 3]))
    found = {}
    for policy in (f"{others}remember={remember}", f"{others}remember=1000000", others[:-1]):
        state, reasons, output = operator(case, policy).empty(), [], []
        for number in range(2):
            state.step(Inputs(control=(Attach(f"r{number}"),)))
        begin = 0
        for step, end in enumerate(ends):
            for name, some in runs(arrived[begin:end]):
                reason, out = take(state, name, some)
                reasons += reason
                output += out
            begin = end
            if step == silent:
                output += to_elements(state.step(Inputs(control=(PassOver("r0"),))).output)
        found[policy] = reasons, output
    (short, made), *others_found = found.values()
    assert [History.of(output) for _, output in others_found] == [History.of(made)] * 2
    for reasons, _ in others_found:
        assert Reason.FORGOTTEN not in reasons
        pairs = zip(short, reasons, strict=True)
        assert {pair for pair in pairs if pair[0] is not pair[1]} <= {
            (Reason.FORGOTTEN, Reason.SETTLED),
            (Reason.FORGOTTEN, Reason.LATE),
        }
    assert others_found[0][0] == others_found[1][0]


@given(st.data())
def test_what_returns_within_remember_is_known_and_what_is_older_is_late(data):
    """A copy that was passed over for the whole stream returns with all of its rows."""
    count, remember = data.draw(st.integers(2, 30)), data.draw(st.integers(0, 30))
    state = operator("r3", f"gaps=true,remember={remember}").empty()
    for name in ("east", "west"):
        state.step(Inputs(control=(Attach(name),)))
    state.step(Inputs(control=(PassOver("west"),)))
    rows = [Insert("a", at, at + 1) for at in range(count)]
    for at, row in enumerate(rows):
        take(state, "east", [row, Stable(at + 1)])
        assert len(state.final_names) <= remember + 1
    reasons, _ = take(state, "west", [*rows, Insert("b", count - 2, count), Stable(count)])
    # The frontier is `count`: a row that ended before `count - remember` is forgotten.
    known = [row.end >= count - remember for row in rows]
    # The last row has not ended before the frontier: it is still on the output.
    expected = [Reason.SETTLED if one else Reason.FORGOTTEN for one in known[:-1]]
    assert reasons[: count - 1] == expected
    assert reasons[count - 1] is Reason.KNOWN
    unknown = Reason.FORGOTTEN if count - 2 < count - remember else Reason.LATE
    assert reasons[count] is unknown
    assert Counter(one.bucket for one in reasons).total() == count + 2


def test_what_was_forgotten_stays_so_when_more_is_remembered():
    """Also in other lanes, after a restart and after the copy was not silent for a while."""
    made = operator("r3", "gaps=true,remember=2")
    state = made.empty()
    for name in ("east", "west"):
        state.step(Inputs(control=(Attach(name),)))
    state.step(Inputs(control=(PassOver("west"),)))
    take(state, "east", "insert a 1..2; insert b 5..7; stable 9")
    state.change(Policy.parse("gaps=true,remember=100"))
    assert state.forgotten == 7
    lanes = made.split(state, 2, Route.IDENTITY)
    state = made.from_parts(made.unite(lanes).parts().written)
    assert [one.forgotten for one in lanes] == [7, 7]
    reasons, _ = take(state, "west", "insert a 1..2; insert b 5..7; insert c 8..9")
    assert reasons == [Reason.FORGOTTEN, Reason.SETTLED, Reason.LATE]
    assert Reason.FORGOTTEN.bucket is Bucket.LATE


def test_an_output_that_has_ended_forgets_nothing_more():
    """From `forever` no distance can be measured: a copy a little behind is recognised."""
    for policy in ("remember=1", "gaps=true,wait=1,remember=1"):
        state = operator("r3", policy).empty()
        for name in ("east", "west"):
            state.step(Inputs(control=(Attach(name),)))
        take(state, "east", "insert a 1..5; stable 3")
        if "gaps" in policy:
            state.step(Inputs(control=(PassOver("west"),)))
        take(state, "east", "stable forever")
        reasons, _ = take(state, "west", "insert a 1..5; stable forever")
        assert reasons[0] is Reason.SETTLED
        assert len(state.final_names) == 0


def test_the_keys_of_a_silent_copy_are_forgotten_with_its_events():
    merge = operator("r3", "gaps=true,remember=3")
    state = KeyedOperator(merge, Key(("p",))).empty()
    for name in ("east", "west"):
        state.step(Inputs(control=(Attach(name),)))
    take(state, "west", "insert w 1..2; stable 1")
    state.step(Inputs(control=(PassOver("west"),)))
    for at in range(2, 40):
        take(state, "east", [Insert(f"k{at}", at, at + 1), Stable(at + 1)])
        assert state.facts["keys"] <= 6
    reasons, _ = take(state, "west", "insert w 1..2; insert k39 39..40")
    assert reasons == [Reason.FORGOTTEN, Reason.KNOWN]


@pytest.mark.parametrize("case", ["r0", "r1", "r2"])
def test_cases_that_remember_one_start_refuse_it(case):
    with pytest.raises(UsageError, match=f"case {case.upper()} has no remember=5"):
        testing.engine("kernel", "merge", case=case, policy="remember=5")


def test_it_is_written_and_read_as_the_other_choices():
    policy = Policy.parse("gaps=true, wait=1, remember=7")
    assert policy == Policy(gaps=True, wait=1, remember=7)
    assert str(policy) == "gaps=true,wait=1,remember=7"
    assert Policy.from_dict(replace(policy, gaps=False, wait=None).to_dict()).remember == 7
    with pytest.raises(UsageError, match="remember=-1 is not a distance in time"):
        Policy.parse("remember=-1")
