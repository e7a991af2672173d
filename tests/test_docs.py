"""The pages are true: blocks run, named files and tests exist, options are real."""

import ast
import contextlib
import importlib.util
import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from unittest import mock

import click
import pytest
from click.testing import CliRunner

import anabranch
from anabranch import model

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def load(script: str) -> ModuleType:
    """A script of `.ci` as a module."""
    spec = importlib.util.spec_from_file_location(script, ROOT / ".ci" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[script] = module
    spec.loader.exec_module(module)
    return module


steps = load("pages").steps
STORY = ROOT / "docs" / "guide" / "production.md"
"""A page whose programs are saved and run by its commands."""


def test_the_first_program_of_the_readme_is_short() -> None:
    program = blocks(ROOT / "README.md", "python")[0]
    assert len(program.strip().splitlines()) <= 15


def test_every_claim_about_another_tool_has_a_source() -> None:
    page = (ROOT / "README.md").read_text()
    table = page[page.index("| | `dropDuplicatesWithinWatermark`") :]
    table = table[: table.index("\n\n")]
    rows = [line.split(" | ") for line in table.splitlines()[2:]]
    assert len(rows) >= 5
    for row in rows:
        for cell in row[1:]:
            used = re.findall(r"\(\[(\w)\]\)", cell)
            assert used, cell
            assert all(re.search(rf"^\[{name}\]: \S+$", page, re.MULTILINE) for name in used)


def test_the_marble_table_of_the_readme_has_one_history() -> None:
    table = next(t for t in blocks(ROOT / "README.md", "text") if "the same history" in t)
    picture, _, history = table.partition("      the same history: ")
    marble = model.parse_marble(picture)
    truth = model.parse_events(history)
    for name in ("east", "west"):
        assert model.History.of(marble.stream(name)).events() == truth


def commands() -> list[str]:
    lines = [
        line for page in PAGES for text in blocks(page, "console") for line in text.splitlines()
    ]
    return sorted({line.removeprefix("$ ") for line in lines if line.startswith("$ ")})


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("make")])
def test_make_commands_exist(line: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    words = line.split()
    assert len(words) == 1 or words[1] in targets


@pytest.mark.parametrize("line", [c for c in commands() if c.startswith("anabranch")])
def test_options_of_commands_exist(line: str) -> None:
    from anabranch.cli.main import COMMANDS, cli

    words = line.split()[1:]
    if words[0] in {"--help", "--version"}:
        return
    assert words[0] in COMMANDS
    command = cli.get_command(None, words[0])  # type: ignore[arg-type]
    if isinstance(command, click.Group) and len(words) > 1:
        assert words[1] in command.commands
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {word for word in words if word.startswith("--")} <= known


def test_every_file_and_test_of_the_papers_page_exists() -> None:
    named = re.findall(r"`((?:src|tests)/[^`]+)`", (ROOT / "docs" / "papers.md").read_text())
    assert len(named) > 20
    for name in named:
        file, _, test = name.partition("::")
        assert (ROOT / file).is_file(), name
        assert not test or f"def {test}(" in (ROOT / file).read_text(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    defined = re.findall(r"^\[\w+\]: ([^#\s]+)", text, re.MULTILINE)
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", text) + defined:
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_public_names_are_all_there_and_on_the_page() -> None:
    assert set(anabranch.__all__) == set(anabranch._HOMES)
    offered = {name for name in dir(anabranch) if not name.startswith("_")}
    assert offered == set(anabranch.__all__)
    page = (ROOT / "docs" / "guide" / "python.md").read_text()
    for name in anabranch.__all__:
        assert getattr(anabranch, name) is not None
        assert f"`{name}`" in page, name


PUBLIC = {
    f"anabranch{part}"
    for part in (
        "",
        *(".clocks", ".errors", ".model", ".pictures", ".sinks", ".testing", ".windows"),
        ".testing.clocks",
    )
}
"""What a guide may import; what is inside is for `docs/internals`."""


def inner_imports(program: str) -> list[str]:
    """Modules of ours that a program imports and that are not public."""
    found = []
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            of_modules = node.module == "anabranch"  # `from anabranch import batch`
            names = [alias.name for alias in node.names] if of_modules else []
            inner = [n for n in names if importlib.util.find_spec(f"anabranch.{n}")]
            found += [f"anabranch.{name}" for name in inner] or [node.module]
    return [name for name in found if name.split(".")[0] == "anabranch" and name not in PUBLIC]


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_guides_import_public_modules_alone(page: Path) -> None:
    inner = {name for program in blocks(page, "python") for name in inner_imports(program)}
    assert inner == set()


@pytest.mark.parametrize(
    "page",
    sorted((ROOT / "docs" / "guide").glob("*.md")),
    ids=lambda page: page.name,
)
def test_guides_name_the_problem_and_what_goes_wrong(page: Path) -> None:
    title, problem, *_ = page.read_text().split("\n\n", 2)
    assert title.startswith("# ")
    assert problem.startswith("**The problem.** ")
    assert "\n## What goes wrong\n" in page.read_text()


PICTURE = re.compile(r"^!\[.+\]\(|^ *replica 0 +\|.*\n *replica 1 +\||\|█", re.MULTILINE)
"""A drawing, a marble table, or a curve in text."""


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "guide").glob("*.md")), ids=lambda page: page.name
)
def test_guides_have_a_picture_and_something_to_type(page: Path) -> None:
    text = page.read_text()
    assert PICTURE.search(text), "draw one: .ci/pictures.py"
    assert re.search(r"^```(python|console|sh)$|^    \S", text, re.MULTILINE)


INNER = re.compile(r"`(?:import |from )?((?:anabranch|ab)(?:\.[a-z_]+)+|src/anabranch/[\w/.]+)")
"""What may be a module of ours, in the prose of a page."""


def inner_names(text: str) -> list[str]:
    """Modules of ours in code within a sentence that are not public."""
    found = []
    for name in INNER.findall(BLOCK.sub("", text)):
        module = re.sub(r"^ab\b", "anabranch", name)
        while "." in module and not is_module(module):
            module = module.rpartition(".")[0]
        if module not in PUBLIC:
            found.append(name)
    return found


def is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # what is before the last dot is no package
        return False


@pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))],
    ids=lambda page: page.name,
)
def test_guides_name_public_modules_alone(page: Path) -> None:
    assert inner_names(page.read_text()) == []


def test_inner_names_are_found() -> None:
    text = "`anabranch.pictures.draw_query(q)`, `ab.merge(x)`, `anabranch merge`, "
    text += "`anabranch.sinks.contract.Sink`, `src/anabranch/spark/query/start.py`"
    assert inner_names(text) == [
        "anabranch.sinks.contract",
        "src/anabranch/spark/query/start.py",
    ]


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "guide").glob("*.md")), ids=lambda page: page.name
)
def test_every_block_of_python_of_a_guide_runs(page: Path) -> None:
    """But those that need Kafka, which a deep test runs."""
    text = page.read_text()
    left_out = re.findall(r"(?:(<!--.*-->)\n)?(?:^`\S+`:\n\n)?^```(\w+)$", text, re.MULTILINE)
    for comment, language in left_out:
        assert language != "py", "write python, and let it run"
        assert language != "python" or comment in ("", "<!-- kafka -->")
    assert not re.search(
        r"^    (?:import |from \w+ import|\w+ = ab\.)", BLOCK.sub("", text), re.M
    )


def test_inner_imports_are_found() -> None:
    program = "import anabranch as ab\nfrom anabranch import windows, batch\n"
    program += "from anabranch.operators.merge.policy import Policy\nimport anabranch.spark\n"
    assert inner_imports(program) == [
        "anabranch.batch",
        "anabranch.operators.merge.policy",
        "anabranch.spark",
    ]


def programs(*, spark: bool) -> list[object]:
    """The blocks of Python that need Spark, or those that do not, with what they print."""
    return [
        pytest.param(step.text, step.printed, id=f"{page.name}-{number}")
        for page in PAGES
        for number, step in enumerate(s for s in steps(page) if s.kind != "command")
        if page != STORY and ("ab.session(" in step.text) is spark
    ]


def run_block(program: str, folder: Path, *arguments: str) -> str:
    """As a program of its own would run there, but in this process; what it prints."""
    printed = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        mock.patch.object(sys, "argv", ["block", *arguments]),
    ):
        exec(compile(program, "<block>", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


@pytest.mark.parametrize(("program", "printed"), programs(spark=False))
def test_python_blocks_run(program: str, printed: str | None, tmp_path: Path) -> None:
    shown = run_block(program, tmp_path)
    assert printed is None or shown == printed


def cheap(command: str) -> bool:
    """A command of ours that needs neither Spark nor files that a page does not have."""
    words = shlex.split(command)
    return words[0] == "anabranch" and words[1] in {
        "check",
        "clocks",
        "explain",
        "generate",
        "windows",
    }


def in_order(shown: str, printed: str) -> bool:
    """Whether the printed lines have all shown lines, in the same order."""
    lines = (line.rstrip() for line in printed.splitlines())
    return all(line.rstrip() in lines for line in shown.splitlines())


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in sorted((ROOT / "docs" / "guide").glob("*.md"))
        if any(step.kind == "command" and cheap(step.text) for step in steps(page))
    ],
    ids=lambda page: page.name,
)
def test_commands_without_spark_print_what_a_guide_shows(page: Path, tmp_path: Path) -> None:
    from anabranch.cli.main import cli

    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for step in steps(page):
        if step.kind == "command" and cheap(step.text):
            with contextlib.chdir(tmp_path):
                ran = CliRunner().invoke(
                    cli, shlex.split(step.text)[1:], env={"COLUMNS": "110"}
                )
            differs = 1 if " windows compare " in step.text else 0  # "No" is an answer
            assert ran.exit_code in {0, differs}, ran.output
            assert in_order(step.printed or "", ran.stdout), ran.stdout


@pytest.fixture
def shared_folder(spark: "SparkSession", spark_folder: Path) -> Iterator[Path]:
    """The folder of Spark's relative paths: what a block leaves there is removed.

    Else the next block would find a checkpoint of the same name.
    """
    before = set(spark_folder.iterdir())
    yield spark_folder
    for left in set(spark_folder.iterdir()) - before:
        shutil.rmtree(left) if left.is_dir() else left.unlink()


@pytest.mark.spark
@pytest.mark.parametrize(("program", "printed"), programs(spark=True))
def test_python_blocks_run_on_spark(
    shared_folder: Path, program: str, printed: str | None
) -> None:
    from anabranch.spark.query.sources import has_names

    if "readStream.name(" in program and not has_names():
        pytest.skip("sources have names from PySpark 4.2 on")
    shown = run_block(program, shared_folder)
    assert printed is None or shown == printed


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:ab.merge. these streams have no stables")
def test_the_commands_of_the_production_guide_print_what_it_shows(shared_folder: Path) -> None:
    from anabranch.cli.main import cli

    saved: dict[str, str] = {}
    for step in steps(STORY):
        if step.kind == "file":
            saved[step.name] = step.text
            continue
        first, name, *arguments = shlex.split(step.text)
        if first == "python":
            shown = run_block(saved[name], shared_folder, *arguments)
            assert step.printed is None or shown == step.printed
        else:
            assert first == "anabranch"
            with contextlib.chdir(shared_folder):
                ran = CliRunner().invoke(cli, [name, *arguments])
            assert ran.exit_code == 0, ran.output
    assert set(saved) == {"feed.py", "job.py", "report.py", "final.py"}


def test_the_numbers_of_the_readme_are_those_of_committed_results() -> None:
    results = {
        name: json.loads((ROOT / "benchmarks" / "results" / f"merge_{name}.json").read_text())
        for name in ("throughput", "sweep", "memory")
    }
    small, large = results["throughput"]["r3"][:2]
    million = next(p for p in results["sweep"]["live_events"] if p["value"] == 1_000_000)
    page = (ROOT / "README.md").read_text()
    assert f"{small['r3_to_polars_unique']} of its speed with 100-byte payloads" in page
    assert f"{large['r3_to_polars_unique']} with 1000 bytes" in page
    assert f"{small['r3_to_reference']} times the element-by-element form" in page
    assert f"leave {million['to_first']} of the speed" in page
    assert f"need {results['memory']['r3_ten_inputs_to_two']} times the memory" in page


def test_the_speeds_beside_spark_are_those_of_the_committed_result() -> None:
    results = ROOT / "benchmarks" / "results"
    parts = json.loads((results / "spark_native.json").read_text())["parts"]
    shown = {
        "narrow": "300,000 narrow",
        "bytes100": "150,000 of 100 bytes",
        "bytes1000": "60,000 of 1000 bytes",
        "small": "1,002 of 100 bytes",
    }
    readme = (ROOT / "README.md").read_text()
    sizing = (ROOT / "docs" / "guide" / "sizing.md").read_text()
    for part, rows in shown.items():
        sides = {
            name: round(side["ms"]["median"]) for name, side in parts[part]["sides"].items()
        }
        ms = [sides[name] for name in ("merge", "inbox", "rocksdb", "hdfs")]
        assert f"| {rows} | {' | '.join(map(str, ms))} |" in readme
        assert f"| {rows} | {sides['merge']} ms |" in sizing
        assert f"{parts[part]['rows_per_trigger']:,} " in rows
    for part, ratio in (("state", "live_10_to_live_1"), ("revisions", "revisions_to_inserts")):
        assert f"{parts[part][ratio]['median']:.2f} times as long" in sizing
    starts = json.loads((results / "spark_start.json").read_text())
    for part, rows in (("tiny", "33"), ("rows300000", "300,000")):
        cold = [f"{starts[part][one]['seconds']:.1f} s" for one in ("native", "merge", "inbox")]
        assert f"| {rows} | {' | '.join(cold)} |" in readme
    command = starts["command"]["command"]
    assert f"takes {command['seconds']:.1f} s, {command['seconds_above_bare']:.1f} s" in readme


def test_the_speeds_of_queries_are_those_of_the_committed_results() -> None:
    results = ROOT / "benchmarks" / "results"
    readme = (ROOT / "README.md").read_text()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    queries = json.loads((results / "queries_spark.json").read_text())
    shown = {
        "windows": "count and avg by 10,000 keys and hopping windows",
        "join": "interval join of two streams",
    }
    for part, name in shown.items():
        ms = [
            round(queries[part]["ms"][side]["median"]) for side in ("ours", "rocksdb", "heap")
        ]
        assert f"| {name} | {' | '.join(map(str, ms))} |" in readme
        ratios = [queries[part][f"{side}_to_ours"]["median"] for side in ("rocksdb", "heap")]
        assert all(f"| {ratio:.2f} " in page for ratio in ratios)
    few, many = json.loads((results / "join.json").read_text())["against_duckdb"]
    speeds = (few["ours_to_duckdb"], many["ours_to_duckdb"])
    assert (
        "{} of its speed with 10 thousand live events, {} with 1 million".format(*speeds)
        in readme
    )
    assert (
        "{} of its speed with 10,000 live events and {} with 1,000,000".format(*speeds) in page
    )


def test_losses_of_starts_and_heartbeats_are_those_of_the_committed_results() -> None:
    results = ROOT / "benchmarks" / "results"
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    starts = json.loads((results / "spark_start.json").read_text())
    tiny, rows = (
        [starts[part][side]["ratio_to_native"] for side in ("merge", "inbox")]
        for part in ("tiny", "rows300000")
    )
    assert "{} times for DataFrames and {} for an inbox with 33 rows".format(*tiny) in page
    assert "{} and {} with 300,000 rows".format(*rows) in page
    assert f"takes {starts['command']['command']['seconds_above_bare']} s more" in page
    beats = json.loads((results / "heartbeats_spark.json").read_text())["trigger"]
    assert f"takes {beats['ratio']['median']:.2f} times as long as with stables" in page


@pytest.mark.parametrize("name", ["cluster.md", "sizing.md"])
def test_the_sizing_table_is_that_of_the_committed_result(name: str) -> None:
    result = ROOT / "benchmarks" / "results" / "merge_sizing.json"
    page = (ROOT / "docs" / "guide" / name).read_text()
    for point in json.loads(result.read_text())["points"]:
        held, saved = point["held_mb_per_million"], point["state_store_mb_per_million"]
        start = f"| {point['payload_bytes']} bytes | {point['inputs']} |"
        assert f"{start} {held} MB | {saved} MB |" in page


@pytest.mark.parametrize("name", anabranch._MOVED)
def test_a_name_that_moved_names_its_new_place(name: str) -> None:
    with pytest.raises(AttributeError, match=f"from (.+) import {name}") as raised:
        getattr(anabranch, name)
    module = re.search("from (.+) import", str(raised.value))[1]  # type: ignore[index]
    assert hasattr(import_module(module), name)
    assert not hasattr(anabranch, name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = anabranch.nothing  # type: ignore[attr-defined]
