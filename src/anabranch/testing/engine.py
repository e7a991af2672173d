"""Runs one operator as a reference, compiled, in lanes or on Spark, with one interface.

    reference   element by element, in plain Python: what the operator means
    kernel      compiled, over batches, in one lane
    lanes       what Spark's workers run, without Spark: parcels, several lanes, saved states
    spark       a streaming query on local Spark

    engine.push("east", "insert a 3..9; stable 5")     elements of an input, in its order
    engine.attach("west", guarantee=5)                  an input takes part, or
    engine.detach("west")                               leaves
    engine.change("stable_lag=2")                       other settings, from the next step on
    engine.reach(20)                                    the greatest start of the whole query
    engine.cut()                                        the step (on Spark: the trigger) ends
    engine.restart()                                    stop, and go on from what was saved
    engine.output, engine.history, engine.account       what came of it

What is promised, on every engine and from one version to the next:

* What is pushed becomes visible with the next `cut`, which returns what it added to `output`.
* Within a step the order of each input's own elements counts.  How the inputs interleave does
  not decide anything that they agree about.
* A control entry ends the step before it and takes effect before what is pushed after it.
* An input that is pushed and was never attached takes part from then on, complete from the
  beginning.  One that was detached must be attached before it pushes again.  One that a policy
  detached for a violation as well: until then all its elements are violations.
* `output` is a physical stream.  Two engines may present one history by other elements, so
  compare `history`, or `anabranch.model.history.replay` of the outputs.
* `account` has for each input the number of its elements in each bucket; they add up to what
  was pushed and cut.  Which of several inputs brought an event may differ between engines.
* `counts` has `conflicts` (events that a deciding input denies although the output had promised
  them), `missing` (identities of the output that a deciding input never mentioned),
  `added_adjusts` and `added_inserts` (elements of the output that no single input element asked
  for), and `live`: the events that are remembered, none once all is final.
* The reference and the kernel also name what is missing (`gaps`), and the reason of each
  element in the order of pushing (`reasons`, names of `anabranch.operators.contract.Reason`).
  On the other engines both are None.
* Nothing of an engine's state can be reached: a test that is written here outlives the state.

>>> with engine("kernel", case="r3") as merge:
...     merge.push("east", "insert a 3..9")
...     merge.push("west", "insert a 3..7")
...     merge.cut()
...     merge.push("west", "stable 8")
...     merge.cut()
(Insert(payload='a', start=3, end=9),)
(Adjust(payload='a', start=3, old_end=9, end=7), Stable(time=8))
>>> merge.account["west"]["emitted"], merge.account["west"]["absorbed"]
(1, 1)
"""

from collections.abc import Hashable, Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Element
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import Attach, Bucket, Detach, NewSettings, PassOver, Reached
from anabranch.testing.backends import COUNTED, Backend, Compiled, Stepwise
from anabranch.testing.operators import OPERATORS, Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: Final = ("reference", "kernel", "lanes", "spark")
TEXT: Final = pa.schema({"payload": pa.string()})


class Engine:
    """An operator that runs; made by `engine`, ended by `close` or the end of a `with`."""

    def __init__(self, name: str, operator: str, backend: Backend) -> None:
        self.name: Final = name
        self.operator: Final = operator
        self._backend = backend
        self._pushed: list[tuple[str, Element]] = []
        self._attachments: dict[str, int] = {}
        self._attached: set[str] = set()

    def __repr__(self) -> str:
        return f"<{self.operator} on {self.name}: {len(self.output)} elements out>"

    def push(self, name: str, elements: str | Iterable[Element]) -> None:
        """The next elements of an input, as text or as elements of the model."""
        found = parse(elements) if isinstance(elements, str) else elements
        self._pushed += [(name, element) for element in found]

    def attach(self, name: str, *, guarantee: Time | None = None) -> None:
        """An input takes part from now on.

        It is right about every event that ends at `guarantee` or later; without one, about all.
        """
        self.cut()
        self._leave_expelled()
        if name in self._attached:
            message = f"engine: {name!r} is attached already; detach it first"
            raise UsageError(message)
        self._attached.add(name)
        number = self._attachments[name] = self._attachments.get(name, 0) + 1
        self._backend.control(Attach(name, number, _units(guarantee)))

    def detach(self, name: str) -> None:
        """An input leaves; what it brought to the output stays."""
        self.cut()
        self._leave_expelled()
        if name not in self._attached:
            message = f"engine: {name!r} is not attached; attached are {sorted(self._attached)}"
            raise UsageError(message)
        self._attached.remove(name)
        self._backend.control(Detach(name))

    def pass_over(self, name: str) -> None:
        """Do not wait for an input until it has caught up; for copies with gaps."""
        self.cut()
        self._backend.control(PassOver(name))

    def change(self, settings: str) -> None:
        """Go on with other settings: of a merge, a policy as text; `violations` stays."""
        self.cut()
        self._backend.control(NewSettings(settings))

    def reach(self, start: Time, *, time: int | None = None) -> None:
        """The query has seen this start, in all lanes, by this time of the wall clock."""
        self.cut()
        units = _units(start)
        assert units is not None, "a start is a time"
        self._backend.control(Reached(units, time))

    def cut(self) -> tuple[Element, ...]:
        """End the step: take what was pushed; what came out since the cut before."""
        before, pushed = len(self._backend.output), self._pushed
        self._pushed = []
        for name in dict.fromkeys(name for name, _ in pushed):
            self._announce(name)
        runs = groupby(pushed, key=itemgetter(0))
        self._backend.step(
            [(name, self._attachments[name], [e for _, e in some]) for name, some in runs]
        )
        return tuple(self._backend.output[before:])

    def restart(self) -> None:
        """End the step, stop, and go on from what was saved."""
        self.cut()
        self._backend.restart()

    @property
    def output(self) -> tuple[Element, ...]:
        """All that came out until the last cut, in order."""
        return tuple(self._backend.output)

    @property
    def history(self) -> History:
        """What the output stands for."""
        return History.of(self.output)

    @property
    def account(self) -> Mapping[str, Mapping[str, int]]:
        """By input and bucket the number of elements; all buckets are there."""
        return {
            name: {bucket.word: found.get(bucket.word, 0) for bucket in Bucket}
            for name, found in self._backend.account.items()
        }

    @property
    def counts(self) -> Mapping[str, int]:
        """What the steps counted so far, and the events that are remembered: `live`."""
        return {name: self._backend.counts.get(name, 0) for name in (*COUNTED, "live")}

    @property
    def reasons(self) -> tuple[str, ...] | None:
        """The name of each element's reason, in the order of pushing; None on some engines."""
        found = self._backend.reasons
        return None if found is None else tuple(reason.name for reason in found)

    @property
    def gaps(self) -> tuple[tuple[str, int, Hashable], ...] | None:
        """What is missing: (input, start, payload); None on some engines."""
        found = self._backend.gaps
        return None if found is None else tuple((g.replica, g.start, g.payload) for g in found)

    def close(self) -> None:
        """Stop what runs; what came out can still be read."""
        self._backend.close()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _announce(self, name: str) -> None:
        if name not in self._attachments:
            self._attachments[name] = 1
            self._attached.add(name)
        elif name not in self._attached:
            message = f"engine: {name!r} was detached; attach it again before it pushes"
            raise UsageError(message)

    def _leave_expelled(self) -> None:
        self._attached -= self._backend.expelled


def engine(
    name: str,
    operator: str = "merge",
    *,
    payload: pa.Schema = TEXT,
    lanes: int = 2,
    check_every: int = 1,
    spark: "SparkSession | None" = None,
    folder: str | Path | None = None,
    **options: Any,
) -> Engine:
    """An operator on an engine; `options` are those of the operator.

    `merge` has `case` ("auto", "r0" to "r4") and `policy` (text, or a `Policy`); `normalise`,
    `cleanse` and `final` have none and take one input.  `aggregate` has `keys` (names of
    columns) and `functions` (aggregates, or one as text, such as "sum(x)").  `cleanse` has one
    order and frontier in one lane only: several are refused once their frontiers differ.  The
    output of `final` are the events that became final, as inserts.  `keyed` is a merge whose
    inputs have one event per key: `keys` (names of columns), `duplicates` ("violation" or
    "drop"), and the options of `merge`.  `distinct` takes one input; `difference`, `join` and
    `union_of` take two, `left` and `right`, and must not break their promises.  `join` has
    `how` ("inner", "left", "semi", "anti") and joins on the first column; the other columns of
    its right input are called `right_NAME`.  `hold` is align in front of a step: it has `wait`,
    `wait_wall`, `release` ("ordered", "final") and `beside`, the number of inputs that it is
    released together with.  `finalize` has `remember`.  `promised` has `origin` and `remember`,
    and its input `promises` has counts as payloads.

    `payload` are the payload columns: with one column a payload is its value, else a tuple.
    `lanes` counts on the engines that have several.  Compiled states assert their invariants
    after every `check_every`-th step, references after that number of elements.  `spark` is the
    session to use (a local one is started otherwise) and `folder` a new place for its files (a
    temporary one otherwise).
    """
    if name not in ENGINES:
        message = f"engine: {name!r}; engines are {', '.join(ENGINES)}"
        raise UsageError(message)
    if operator not in OPERATORS:
        message = f"engine: operator {operator!r}; operators are {', '.join(OPERATORS)}"
        raise UsageError(message)
    entry, schema = OPERATORS[operator], ElementSchema(TimeType.BIGINT, payload)
    if name == "reference":
        return Engine(
            name, operator, Stepwise(entry.reference_of(payload, options), check_every)
        )
    if name == "spark":
        return Engine(name, operator, _on_spark(entry, schema, lanes, spark, folder, options))
    made, final = entry.operator(schema, options), entry.view == "final"
    if name == "kernel":
        return Engine(name, operator, Compiled(made, final, check_every))
    from anabranch.testing.in_lanes import InLanes

    return Engine(name, operator, InLanes(made, lanes, final, check_every))


def _on_spark(
    entry: Entry,
    schema: ElementSchema,
    lanes: int,
    spark: "SparkSession | None",
    folder: str | Path | None,
    options: Mapping[str, Any],
) -> Backend:
    from anabranch.spark.session.start import session
    from anabranch.testing.on_spark import OnSpark

    found = session(master="local[2]") if spark is None else spark
    return OnSpark.start(found, entry, schema, lanes, folder, options)


def _units(time: Time | None) -> int | None:
    return time if time is None else int(FOREVER_UNITS) if time == FOREVER else int(time)
