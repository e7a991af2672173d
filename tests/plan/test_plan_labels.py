"""Labels of steps: Figure 6, the three ways of section 7, and errata H20 and H24."""

from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_plan_stages import SCHEMA, counted, filtered

from anabranch.operators.route import Route, Routing
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.labels import (
    Waiting,
    is_order_insensitive,
    labels,
    memory_links,
    selectivities,
)
from anabranch.plan.node import Node, Source, Step, nodes, reads_of, rewritten


def source(name: str) -> Source:
    return Source(name, None, SCHEMA, Routing(Route.IDENTITY), "stream")


def step(name: str, *reads: Node, selectivity: float | None = None) -> Step:
    """A step of this shape; what it does with its rows does not matter here."""
    operator = UnionOfOperator(SCHEMA, tuple(f"of_{one.id}" for one in reads))
    named = tuple((f"of_{one.id}", one) for one in reads)
    return Step(name, operator, named, name, selectivity=selectivity)


def figure_5(selectivity: float | None = None) -> Step:
    """O1 reads S1 and S2, O2 reads O1 and S3."""
    s1, s2, s3 = (source(f"S{n}") for n in (1, 2, 3))
    return step("O2", step("O1", s1, s2, selectivity=selectivity), s3)


def of_steps(last: Node, waiting: Waiting = Waiting.MEMORY, **how: object) -> dict[str, str]:
    """The labels of the steps, in short."""
    found = labels(last, waiting, **how)  # type: ignore[arg-type]
    return {
        one.id: " ".join(found[one.id].sources)
        for one in nodes(last)
        if not isinstance(one, Source)
    }


ALL = "S1 S2 S3"


def test_section_7_1_every_step_waits_for_all_sources() -> None:
    assert of_steps(figure_5(), Waiting.QUERY) == {"O1": ALL, "O2": ALL}


def test_section_7_2_figure_5_o1_is_independent_of_s3() -> None:
    assert of_steps(figure_5(), Waiting.OPERATOR) == {"O1": "S1 S2", "O2": ALL}


def test_section_7_4_figure_5_o1_waits_for_s3_if_it_multiplies_rows() -> None:
    assert of_steps(figure_5(4.0)) == {"O1": ALL, "O2": ALL}
    link = labels(figure_5(4.0))["O1"].link
    assert link is not None
    assert (link.of, link.selectivity, link.to) == ("O1", 4.0, "O2")


@pytest.mark.parametrize("selectivity", [None, 0.2, 1.0, 1 / 3 * 3])
def test_section_7_4_figure_5_as_7_2_if_it_does_not(selectivity: float | None) -> None:
    assert of_steps(figure_5(selectivity)) == {"O1": "S1 S2", "O2": ALL}
    assert labels(figure_5(selectivity))["O1"].link is None


def test_measured_selectivity_counts_where_none_is_declared() -> None:
    assert of_steps(figure_5(), measured={"O1": 2.0})["O1"] == ALL
    assert of_steps(figure_5(0.5), measured={"O1": 2.0})["O1"] == "S1 S2"
    assert selectivities(nodes(figure_5(0.5)), {"O1": 2.0, "O2": 3.0}) == {
        "O1": 0.5,
        "O2": 3.0,
    }


def test_a_step_that_takes_the_rows_away_again_ends_the_link() -> None:
    """O1 x4, then a filter that keeps a tenth: both wait together, and not for S3."""
    s1, s2, s3 = (source(f"S{n}") for n in (1, 2, 3))
    kept = replace(filtered(step("O1", s1, s2, selectivity=4.0)), selectivity=0.1)
    last = step("O2", kept, s3)
    assert of_steps(last) == {"O1": "S1 S2", "where": "S1 S2", "O2": ALL}
    (link,) = memory_links(last, selectivities(nodes(last), {}))
    assert (link.to, link.passes) == ("where", {"O1", "where"})


def test_what_is_below_a_link_waits_as_well_and_what_is_beside_it_does_not() -> None:
    """Figure 6: a link from within a subtree; the link of O1 passes O3, which reads O0 too."""
    a, b, c, d, e = (source(name) for name in "abcde")
    below = step("below", a, b)
    o1 = step("o1", below, c, selectivity=3.0)
    beside = step("beside", d)
    last = step("last", step("middle", o1, beside), e)
    assert of_steps(last) == {
        "below": "a b",
        "o1": "a b c d e",
        "beside": "d",
        "middle": "a b c d e",
        "last": "a b c d e",
    }


def test_erratum_h20_an_operator_may_be_its_own_ancestor() -> None:
    """Without that every step has a link, and the strategy is always that of 7.1."""

    def as_printed(last: Node, selectivity: dict[str, float]) -> dict[str, set[str]]:
        return figure_6(last, selectivity, own=False)

    last = figure_5()
    every = {"S1", "S2", "S3"}
    assert as_printed(last, {"O1": 0.2}) == {"O1": every, "O2": every}
    assert figure_6(last, {"O1": 0.2}) == {"O1": {"S1", "S2"}, "O2": every}
    assert of_steps(last, measured={"O1": 0.2}) == {"O1": "S1 S2", "O2": ALL}


def test_section_7_5_where_select_and_windows_look_at_each_element_by_itself() -> None:
    read = source("S1")
    assert is_order_insensitive(filtered(read))
    assert is_order_insensitive(read)
    assert is_order_insensitive(step("union", read))
    assert not is_order_insensitive(counted(read, "k"))


def figure_6(
    last: Node, selectivity: dict[str, float], *, own: bool = True
) -> dict[str, set[str]]:
    """Figure 6 as printed, on a tree.  Not `own`: an operator is no ancestor of itself."""
    steps = [one for one in nodes(last) if not isinstance(one, Source)]
    parent = {read.id: one for one in steps for read in reads_of(one)}

    def up(node: Node) -> list[Node]:
        above = [node]
        while above[-1].id in parent:
            above.append(parent[above[-1].id])
        return above

    def of(node: Node) -> float:
        return 0.0 if node is last else selectivity.get(node.id, 1.0)

    links: list[tuple[str, str]] = []
    for one in steps:
        product, chain = 1.0, up(one)
        for ancestor in chain:
            product *= of(ancestor)
            if product <= 1 + 1e-9 and (own or ancestor is not one):
                links.append((one.id, ancestor.id))
                break

    def within(node: Node) -> set[str]:
        return {one.id for one in nodes(node)}

    found: dict[str, set[str]] = {}

    def assign(node: Node) -> None:
        above = {one.id for one in up(node)[1:]}
        if any(start in within(node) and end in above for start, end in links):
            found[node.id] = found[parent[node.id].id]
        else:
            found[node.id] = {one.id for one in nodes(node) if isinstance(one, Source)}
        for child in reads_of(node):
            if not isinstance(child, Source):
                assign(child)

    assign(last)
    return found


SELECTIVITIES = st.sampled_from([0.1, 0.25, 0.5, 1.0, 2.0, 4.0])


@st.composite
def plans(draw: st.DrawFn, *, shared: bool = False) -> Step:
    """Plans of some depth; with `shared`, what a step reads others may read too."""
    names, made = count(), list[Node]()

    def build(depth: int) -> Node:
        if shared and made and draw(st.booleans()):
            return draw(st.sampled_from(made))
        number = next(names)
        if depth == 0 or draw(st.integers(0, 4)) == 0:
            made.append(source(f"s{number:02}"))
            return made[-1]
        reads = [build(depth - 1) for _ in range(draw(st.integers(1, 3)))]
        reads = list({id(one): one for one in reads}.values())
        made.append(step(f"o{number:02}", *reads, selectivity=draw(SELECTIVITIES)))
        return made[-1]

    reads = {id(one): one for one in (build(3), build(2))}
    return step("last", *reads.values(), selectivity=draw(SELECTIVITIES))


def known(last: Node) -> dict[str, float]:
    return dict(selectivities(nodes(last), {}))


@given(plans())
def test_figure_6_gives_the_smallest_labels_that_are_equal_along_every_link(last: Step) -> None:
    found = labels(last)
    assert {
        one.id: set(found[one.id].sources) for one in nodes(last) if not isinstance(one, Source)
    } == figure_6(last, known(last))


@given(plans(shared=True))
def test_labels_are_between_those_of_7_2_and_7_1(last: Step) -> None:
    least, most = labels(last, Waiting.OPERATOR), labels(last, Waiting.QUERY)
    for name, label in labels(last).items():
        assert set(least[name].sources) == set(label.below) <= set(label.sources)
        assert set(label.sources) <= set(most[name].sources) | {name}
        assert label.link is None or label.sources != label.below


@given(plans(shared=True))
def test_labels_keep_the_three_rules_where_steps_are_shared(last: Step) -> None:
    found = labels(last)
    for one in nodes(last):
        for read in reads_of(one):
            assert set(found[read.id].sources) <= set(found[one.id].sources)
    for link in memory_links(last, known(last)):
        assert len({found[name].sources for name in link.passes}) == 1
        assert link.selectivity > 1


@given(plans(shared=True))
def test_without_steps_that_multiply_rows_labels_are_those_of_7_2(last: Step) -> None:
    one_to_one = rewritten(
        last, lambda one: one if isinstance(one, Source) else replace(one, selectivity=1.0)
    )
    assert labels(one_to_one) == labels(last, Waiting.OPERATOR)
