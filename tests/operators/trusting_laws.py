"""The laws of operators inside a query: `of` is what the output's history must be.

`of(history)` is the operator as a function of histories, `stable(time)` its output's frontier
for one of the input.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from hypothesis import strategies as st
from unary_laws import cuts

from anabranch import testing
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.history import History, Replay, replay
from anabranch.model.time import Time

Of = Callable[[History], History]


def judge(output: Sequence[Element], seen: Replay, of: Of, stable: Callable[[Time], Time]):
    """The output has the operator's history, its promises are kept, its frontier is right."""
    assert seen.violations == (), f"the input is not valid: {seen.violations}"
    out = replay(output)
    assert out.violations == ()
    assert out.history == of(seen.history)
    assert out.frontier == stable(seen.frontier)


def any_cut_any_restart(
    operator: str, data: st.DataObject, stream: Sequence[Element], of: Of, stable, **options
):
    """However a stream is cut, on every engine: the history is the operator's at each cut."""
    ends = data.draw(cuts(len(stream)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    names = ("reference", "kernel", *(["lanes"] if len(stream) % 3 == 0 else []))
    for name in names:
        with testing.engine(name, operator, **options) as engine:
            for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
                before = len(engine.output)
                engine.push("input", stream[begin:end])
                engine.restart() if again else engine.cut()
                judge(engine.output, replay(stream[:end]), of, stable)
                if name == "kernel":
                    in_step_order(engine.output[before:])


def element_by_element(operator: str, stream: Sequence[Element], **options):
    """The kernel emits what the reference emits, for the same reasons."""
    reference = testing.engine("reference", operator, **options)
    kernel = testing.engine("kernel", operator, **options)
    with reference, kernel:
        for element in stream:
            for engine in (reference, kernel):
                engine.push("input", [element])
            assert reference.cut() == kernel.cut()
            assert reference.counts["live"] == kernel.counts["live"]
        assert reference.reasons == kernel.reasons


def in_step_order(elements: Sequence[Element]):
    """Adjusts by sync time, inserts by start, one stable; none that changes nothing."""
    kinds = [(Adjust, Insert, Stable).index(type(one)) for one in elements]
    assert kinds == sorted(kinds)
    assert kinds.count(2) <= 1
    syncs = [min(one.old_end, one.end) for one in elements if isinstance(one, Adjust)]
    starts = [one.start for one in elements if isinstance(one, Insert)]
    assert syncs == sorted(syncs)
    assert starts == sorted(starts)
    assert not any(one.changes_nothing for one in elements if not isinstance(one, Stable))
