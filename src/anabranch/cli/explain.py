"""`anabranch explain`: which merge case the replicas of an inbox permit, and why.

Exit code 0: explained.  1: a declared property does not hold (`--observe`), or rows are no
elements.  2: the inbox cannot be read, or the case that was asked for is not permitted.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from anabranch.checker.gather import Refusals
    from anabranch.checker.observed import Observed
    from anabranch.model.properties import StreamProperties
    from anabranch.operators.merge.choose import Choice, Declared
    from anabranch.sources.files import Folder

_PATH = click.Path(path_type=Path)


@click.command("explain")
@click.argument("inbox", type=_PATH)
@click.option(
    "--observe", is_flag=True, help="Read the files and report properties that do not hold."
)
@click.option("--gaps", is_flag=True, help="Replicas may lack rows that others have.")
@click.option(
    "--case",
    type=click.Choice(["auto", "r0", "r1", "r2", "r3", "r4"]),
    default="auto",
    show_default=True,
    help="Explain this case instead of the cheapest.",
)
@click.option("--schema", type=_PATH, help="Types of JSON lines: a JSON file of column: type.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    inbox: Path,
    *,
    observe: bool,
    gaps: bool,
    case: str,
    schema: Path | None,
    as_json: bool,
) -> None:
    """Show which merge case the replicas of INBOX permit, why, and what a cheaper one needs.

    A replica declares its properties in its `_replica.json`, as "properties".

    \b
    anabranch generate inbox --case r2
    anabranch explain inbox
    anabranch explain inbox --observe
    """  # noqa: D301
    from anabranch.model.properties import MergeCase
    from anabranch.operators.merge.choose import choose
    from anabranch.sources.files import look
    from anabranch.sources.inbox import declared, require_inbox

    folder = look(inbox, schema=schema)
    require_inbox(folder)
    known = declared(folder)
    asked = None if case == "auto" else MergeCase(case)
    choice = choose(known, gaps_possible=gaps, asked=asked)
    seen, refusals = _observe(folder) if observe else (None, None)
    detached = [str(replica.name) for replica in folder.replicas if replica.detached]
    report: dict[str, Any] = {
        "inbox": str(folder.path),
        "replicas": _replicas(known, seen),
        "detached": detached,
        "refused": None if refusals is None else refusals.count,
        "choice": choice.to_dict(),
        "merge": merge_does(choice, detached=detached),
    }
    click.echo(json.dumps(report) if as_json else _text(report, choice, seen))
    wrong = any(one["broken"] for one in report["replicas"].values())
    ctx.exit(1 if wrong or report["refused"] else 0)


def merge_does(choice: "Choice", *, detached: Sequence[str] = ()) -> dict[str, object]:
    """What `anabranch merge` of this version does with such an inbox."""
    import pyarrow as pa

    from anabranch.batch.schema import ElementSchema, TimeType
    from anabranch.operators.contract import Route
    from anabranch.operators.merge.merge import MergeOperator

    operator = MergeOperator.of(ElementSchema(TimeType.BIGINT, pa.schema([])), choice)
    does = f"merges it as {operator.label.upper()}, in lanes "
    if operator.route is Route.START:
        does += "by start; with one lane the output is in the order of starts"
    else:
        does += "by start and payload"
    if detached:
        does += f"; without {', '.join(detached)}"
    return {"accepts": True, "does": does}


def _observe(folder: "Folder") -> "tuple[Mapping[str, Observed], Refusals]":
    from anabranch.checker.gather import Refusals
    from anabranch.checker.observed import observe_inbox

    refusals = Refusals(0, strict=False)
    return observe_inbox(folder, refusals=refusals), refusals


def _replicas(
    declared: "Declared", seen: "Mapping[str, Observed] | None"
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, known in declared.items():
        found[name] = {"declared": None if known is None else known.to_dict(), "broken": []}
        if seen is None:
            continue
        report = seen[name].to_dict()
        broken = () if known is None else seen[name].broken(known)
        found[name]["observed"] = report["properties"]
        found[name]["elements"] = report["elements"]
        found[name]["breaks"] = report["breaks"]
        found[name]["broken"] = [one.property for one in broken]
    return found


def _text(
    report: dict[str, Any], choice: "Choice", seen: "Mapping[str, Observed] | None"
) -> str:
    from anabranch.checker.observed import held_so_far
    from anabranch.model.properties import cheapest
    from anabranch.operators.merge.choose import explain_choice

    held = held_so_far(seen or {})
    count = len(report["replicas"])
    lines = [f"{report['inbox']}: {count} {'replica' if count == 1 else 'replicas'}"]
    for name, one in report["replicas"].items():
        lines += [f"  {name} declares {_listed(one['declared'])}", *_seen_lines(one, held)]
    lines += [f"  {name} is detached, and left out" for name in report["detached"]]
    if report["refused"]:
        lines.append(f"{report['refused']:,} rows are not elements; see anabranch check")
    lines += ["", explain_choice(choice)]
    if seen:
        lines.append(
            f"all that held so far, if it were promised, permits {cheapest(held).name}"
        )
    return "\n".join([*lines, "", f"`anabranch merge` {report['merge']['does']}"])


def _seen_lines(one: dict[str, Any], held: "StreamProperties") -> list[str]:
    """What the files of one replica show: broken promises, and what might be promised.

    The order of ties is a matter of all replicas, so one alone cannot promise it.
    """
    if "observed" not in one:
        return []
    declared = one["declared"] or {}
    lines = [
        f"    NOT {item['property']}: {item['file']}, row {item['row']}: {item['what']}"
        for item in one["breaks"]
        if item["property"] in one["broken"]
    ]
    observed = one["observed"] | {"ties_in_same_order": held.ties_in_same_order}
    also = [name for name, holds in observed.items() if holds and not declared.get(name)]
    if not lines and one["declared"]:
        lines.append(f"    holds in all {one['elements']:,} elements so far")
    if also:
        lines.append(f"    so far also {', '.join(also)}: declare what will stay true")
    return lines


def _listed(properties: dict[str, bool] | None) -> str:
    held = [name for name, holds in (properties or {}).items() if holds]
    return ", ".join(held) or "nothing"
