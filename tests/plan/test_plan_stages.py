"""Which steps share a stage, what is sent between stages, and how a plan is described."""

import pyarrow as pa
import pytest

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.contract import Route
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.pipeline import Edge
from anabranch.operators.route import Routing
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.explain import explain
from anabranch.plan.node import Native, Source, Step, require_unique, with_names
from anabranch.plan.stages import stages

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "v": pa.int64()}))
RATES = ElementSchema(TimeType.BIGINT, pa.schema({"name": pa.string(), "rate": pa.int64()}))


def source(name: str = "events", schema: ElementSchema = SCHEMA, **how: bool) -> Source:
    return Source(name, None, schema, Routing(Route.IDENTITY), "union", **how)


def counted(node: Source | Step | Native, *keys: str, name: str = "aggregate") -> Step:
    operator = AggregateOperator(node.schema, keys, (Aggregate("count", None, f"n_{name}"),))
    return Step(name, operator, (("input", node),), f"count by {keys}")


def filtered(node: Source | Step | Native, name: str = "where") -> Native:
    return Native(name, node, "opaque", node.schema, "where v > 0")


def joined(left: Source | Step | Native, right: Source | Step | Native) -> Step:
    operator = JoinOperator(left.schema, right.schema, (("k", "name"),))
    return Step("join", operator, (("left", left), ("right", right)), "join on k = name")


def ids(stage: object) -> list[str]:
    return [placed.node.id for placed in stage.steps]


def test_a_source_takes_the_key_of_the_step_above_it() -> None:
    cut, routings = stages(counted(source(), "k"))
    assert [ids(stage) for stage in cut] == [["events", "aggregate"]]
    assert routings == {"events": Routing(Route.KEY, ("k",))}
    assert not cut[0].sends


def test_a_source_whose_route_is_fixed_is_shuffled() -> None:
    cut, routings = stages(counted(source(may_follow=False), "k"))
    assert [ids(stage) for stage in cut] == [["events"], ["aggregate"]]
    assert routings == {"events": Routing(Route.IDENTITY)}
    (send,) = cut[0].sends
    assert (send.of, send.routing) == ("events", Routing(Route.KEY, ("k",)))
    assert cut[1].steps[0].edges == (Edge(send.name, "input"),)


def test_steps_by_some_of_the_keys_stay_in_one_stage() -> None:
    first = counted(source(), "k")
    second = Step("distinct", DistinctOperator(first.schema), (("input", first),), "distinct")
    third = counted(second, "k", "n_aggregate", name="again")
    cut, _ = stages(third)
    assert [ids(stage) for stage in cut] == [["events", "aggregate", "distinct", "again"]]


def test_another_key_ends_a_stage() -> None:
    first = counted(source(), "k")
    second = counted(first, "n_aggregate", name="again")
    cut, routings = stages(second)
    assert [ids(stage) for stage in cut] == [["events", "aggregate"], ["again"]]
    assert routings["events"] == Routing(Route.KEY, ("k",))
    assert cut[0].sends[0].routing == Routing(Route.KEY, ("n_aggregate",))


def test_a_join_of_two_sources_is_one_stage_with_keys_of_both() -> None:
    cut, routings = stages(joined(source(), source("rates", RATES)))
    assert [ids(stage) for stage in cut] == [["events", "rates", "join"]]
    assert routings == {
        "events": Routing(Route.KEY, ("k",)),
        "rates": Routing(Route.KEY, ("name",)),
    }
    assert cut[0].steps[2].edges == (Edge("events", "left"), Edge("rates", "right"))


def test_a_filter_of_sparks_ends_a_stage_and_what_is_beside_it_is_sent_along() -> None:
    rates = source("rates", RATES)
    cut, _ = stages(joined(filtered(source()), rates))
    assert [ids(stage) for stage in cut] == [["events", "rates"], ["join"]]
    by_name = {send.of: send for send in cut[0].sends}
    assert [one.id for one in by_name["events"].natives] == ["where"]
    assert by_name["events"].routing == Routing(Route.KEY, ("k",))
    assert by_name["rates"].routing == Routing(Route.KEY, ("name",))
    assert not by_name["rates"].natives


def test_a_stream_that_a_later_stage_reads_passes_the_stages_between() -> None:
    rates = source("rates", RATES)
    left = counted(counted(source(), "v"), "v", name="again")
    changed = filtered(filtered(left), "where_2")
    over = Native("select", changed, "opaque", SCHEMA, "select")
    cut, _ = stages(joined(Step("n", NormaliseOperator(SCHEMA), (("input", over),), ""), rates))
    assert set(ids(cut[0])) == {"events", "rates", "aggregate", "again"}
    passed = [send.of for stage in cut[:-1] for send in stage.sends if "rates" in send.of]
    assert len(passed) == len(cut) - 1, f"{passed} in {len(cut)} stages"


def test_two_readers_share_what_is_sent() -> None:
    both = filtered(source())
    first, second = counted(both, "k"), counted(both, "k", name="again")
    operator = UnionOfOperator(first.schema, ("a", "b"))
    union = Step("union", operator, (("a", first), ("b", second)), "union")
    cut, _ = stages(union)
    assert len(cut[0].sends) == 1
    assert ids(cut[1]) == ["aggregate", "again", "union"]


def test_ids_that_the_user_did_not_give_get_numbers() -> None:
    below = filtered(source())
    last = filtered(below)
    named = with_names(last)
    assert (named.id, named.of.id) == ("where_2", "where")
    again = Native("where", below, "opaque", SCHEMA, "", is_named=True)
    with pytest.raises(UsageError, match="two steps of this query are called where"):
        require_unique(Native("x", again, "opaque", SCHEMA, "").of)


def test_explain_names_stages_keys_and_what_has_no_key() -> None:
    text = explain(counted(filtered(source())), 4, {"events": "union: all events"})
    assert "stage 0: 4 lanes" in text
    assert "then Spark: where v > 0 (a stage ends here)" in text
    assert "warning: aggregate has no keys, so one of 4 lanes does all of it" in text
    assert "source events:\n  union: all events" in text
    assert "    promises keyed; replicas of it merge by case R3" in text


def sessions(node: Source | Step | Native) -> Step:
    operator = SessionOperator(node.schema, 5, ("k",))
    return Step(
        "session", operator, (("input", node),), "sessions by k", operator.output_final_at_start
    )


def test_lanes_that_hold_stables_in_the_last_stage_are_followed_by_one() -> None:
    """An aggregate by the same key runs beside them; a filter takes the least stable anyway."""
    last = counted(sessions(source()), "k", "window")
    (stage,), routings = stages(last)
    assert ids(stage) == ["events", "session", "aggregate"]
    assert routings == {"events": Routing(Route.KEY, ("k",))}
    assert stage.holds_stables
    words = "stage 1: 1 lane, which emits the least stable of all lanes"
    assert words in explain(last, 4, {})
    assert words not in explain(last, 1, {})
    behind = counted(filtered(sessions(source())), "k")
    assert [one.holds_stables for one in stages(behind)[0]] == [True, False]
    assert "least stable" not in explain(behind, 4, {})


def test_explain_states_when_sessions_are_final() -> None:
    text = explain(sessions(source()), 2, {})
    assert "    remembers the rows of open sessions\n" in text
    assert "    sessions are final when the input's frontier has passed their ends\n" in text
    assert "    stables wait at the start of the oldest open session\n" in text
