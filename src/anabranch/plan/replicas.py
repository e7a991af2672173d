"""Replicas of a query: plans that state the same result, merged by one step.

Merge needs replicas with one history.  Two things give it:

* one plan, run on copies of its inputs.  The history of every operator is a function of the
  histories of its inputs (`why_not_canonical` finds the exception), whatever the order of
  arrival, the triggers and the stables are, and however a kernel computes it (`PHYSICAL`);
* a last step whose history depends on its snapshots alone (`NORMAL_FORM`).

Different plans that agree in every snapshot may cut lifetimes differently (erratum X1).  So
`normalise` goes before the merge for each replica whose last step is not such a one, with the
reason (`Step.why`), which `explain` shows.

The case follows from what the plans promise.  That depends on the number of lanes: `settled`
chooses the case when they are known.

Papers: LMerge III-C, IV-G, with errata X1, X2, X3, D9 and D20.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge_of import MergeOfOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.plan.node import Native, Node, Source, Step, nodes, reads_of, rewritten
from anabranch.plan.properties import properties, properties_of

NORMAL_FORM: Final = ("normalise", "distinct", "difference", "top_k")
"""Operators whose output is in normal form: equal snapshots are equal histories."""

PHYSICAL: Final = ("final_at_start", "reports_final", "emit")
"""Fields of operators that change when something is emitted, but not the history."""


def merged(
    replicas: Mapping[str, Node],
    *,
    plans: Mapping[str, Node] | None = None,
    asked: MergeCase | None = None,
    policy: Policy = DEFAULT,
) -> Step:
    """The step that merges these plans, with `normalise` where it is needed.

    They have the same columns, of the same types and in the same order; `plans` are the same
    before they were put in order.  The case is not chosen yet.
    """
    for name, node in replicas.items():
        if why_not := why_not_canonical(node):
            message = f"ab.merge: two runs of replica '{name}' may differ: {why_not}"
            raise UsageError(message)
    why = why_normalise(plans or replicas)
    reads = {name: _normalised(node, why) for name, node in replicas.items()}
    schema = replace(next(iter(replicas.values())).schema, has_seq=False, has_replica=False)
    operator = MergeOfOperator(schema, tuple(replicas), asked=asked, policy=policy)
    step = Step("merge", operator, tuple(reads.items()), _words(operator))
    # In several lanes least is promised: what is keyed there is keyed in one lane.
    promised = properties_of(step, 2)
    known = all(one.final_at_start and promised[id(one)].keyed for one in reads.values())
    operator = replace(operator, final_at_start=known)
    return replace(step, operator=operator, final_at_start=known)


def settled(last: Source | Step, lanes: int) -> Source | Step:
    """The same plan with the case of each merge of replicas, for this number of lanes."""

    def without_case(node: Node) -> Node:
        operator = _merge_of(node)
        return node if operator is None else _with(node, replace(operator, case=None))

    plan = rewritten(last, without_case)
    assert not isinstance(plan, Native), f"{plan.id} is not in lanes"
    promised = properties(plan, lanes)

    def chosen(node: Node) -> Node:
        operator = _merge_of(node)
        if operator is None:
            return node
        return _with(node, operator.chosen(*(promised[one.id] for one in reads_of(node))))

    found = rewritten(plan, chosen)
    assert not isinstance(found, Native), f"{found.id} is not in lanes"
    return found


def why_normalise(replicas: Mapping[str, Node]) -> str:
    """Why replicas of these plans need not have one history; empty if they have."""
    (first, plan), *others = replicas.items()
    if all(_is_normal(node) for node in replicas.values()):
        return ""
    for name, other in others:
        found = difference(plan, other)
        if found is not None:
            one, two = found
            what = f"{one} in '{first}', {two} in '{name}'" if one != two else f"in {one}"
            return (
                f"the plans differ ({what}): they may cut lifetimes differently, although they "
                "agree in every snapshot"
            )
    return ""


def difference(one: Node, other: Node) -> tuple[str, str] | None:
    """Where two plans differ, nearest to their ends, in words of each; None if they do not.

    Sources at the same place are copies of one stream, if they have the same columns.
    """
    todo, seen = [(one, other)], {(id(one), id(other))}
    while todo:
        a, b = todo.pop(0)
        if a is b:
            continue
        if _meaning(a) != _meaning(b):
            return _shown(a, b), _shown(b, a)
        pairs = zip(reads_of(a), reads_of(b), strict=True)
        todo += [pair for pair in pairs if (id(pair[0]), id(pair[1])) not in seen]
        seen |= {(id(x), id(y)) for x, y in todo}
    return None


def why_not_canonical(last: Node) -> str:
    """Which step's history is no function of its inputs' histories; empty if there is none."""
    for node in nodes(last):
        functions = getattr(node.operator, "functions", ()) if isinstance(node, Step) else ()
        for one in functions:
            if not one.is_canonical:
                return (
                    f"'{one.name}' of step '{node.id}' may depend on the order of the rows; "
                    "declare ab.user_defined(..., canonical=True) if it does not"
                )
    return ""


def explain_merge(node: Node, promised: Mapping[str, StreamProperties]) -> list[str]:
    """Why a merge of replicas has its case, and normalise before it; else nothing."""
    operator = _merge_of(node)
    if operator is None:
        return []
    known = [promised[one.id] for one in reads_of(node)]
    why = [one.why for one in reads_of(node) if isinstance(one, Step) and one.why]
    lines = [f"normalise goes before it: {why[0]}"] if why else []
    return [*lines, operator.explain(*known)]


def warnings_of(step: Step) -> list[str]:
    """What makes the replicas of a merge differ although their plans do not."""
    if _merge_of(step) is None:
        return []
    read = {
        name: [one for one in nodes(node) if isinstance(one, Source)]
        for name, node in step.reads
    }
    common = set.intersection(*({id(one) for one in some} for some in read.values()))
    own = {n: [one for one in some if id(one) not in common] for n, some in read.items()}
    if not any(one.may_drop for some in own.values() for one in some):
        return []
    shown = [f"{', '.join(one.id for one in some)} of '{n}'" for n, some in own.items() if some]
    return [
        f"warning: replicas of {step.id} read streams of their own ({'; '.join(shown)}), which "
        "drop late rows: a row that is late in one only makes the replicas differ; read one "
        "stream in all of them, such as an ab.merge of these"
    ]


def _normalised(node: Node, why: str) -> Node:
    if not why or _is_normal(node):
        return node
    operator = NormaliseOperator(replace(node.schema, has_seq=False, has_replica=False))
    return Step("normalise", operator, (("input", node),), "normalise", why=why)


def _is_normal(node: Node) -> bool:
    return isinstance(node, Step) and node.operator.name in NORMAL_FORM


def _merge_of(node: Node) -> MergeOfOperator | None:
    operator: Any = node.operator if isinstance(node, Step) else None
    return operator if isinstance(operator, MergeOfOperator) else None


def _with(node: Node, operator: MergeOfOperator) -> Node:
    assert isinstance(node, Step), f"{node.id} is no step"
    if operator == node.operator:
        return node
    return replace(node, operator=operator, words=_words(operator))


def _words(operator: MergeOfOperator) -> str:
    """What a run records of it: the names, the case, and a policy that is not the default."""
    case = "" if operator.case is None else f" by case {operator.case.name}"
    policy = "" if operator.policy == DEFAULT else f", policy {operator.policy}"
    return f"merge of replicas {', '.join(operator.names)}{case}{policy}"


def _meaning(node: Node) -> tuple[Any, ...]:
    """What decides the history of a node, beside those that it reads."""
    if isinstance(node, Source):
        return Source, node.schema
    if isinstance(node, Native):
        return Native, node.words, repr(node.change), node.schema
    operator: Any = node.operator
    kept = [one.name for one in fields(operator) if one.name not in PHYSICAL]
    values = [getattr(operator, name) for name in kept]
    return type(operator), kept, values, [port for port, _ in node.reads]


def _shown(node: Node, other: Node) -> str:
    """A node in words, where another plan has another one."""
    if not isinstance(node, Source):
        return f"'{node.words}'"
    columns = ", ".join(f"{one.name}: {one.type}" for one in node.schema.payload)
    return f"a source of {columns}" if isinstance(other, Source) else "the source"
