"""What the pages say is true: blocks run, named files and tests exist, options are real."""

import ast
import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

import anabranch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(page.read_text()) if kind == language]


def test_the_first_block_of_the_readme_prints_what_the_second_says() -> None:
    program = blocks(ROOT / "README.md", "python")[0]
    printed = blocks(ROOT / "README.md", "text")[0]
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == printed


def test_the_marble_table_of_the_readme_has_one_history() -> None:
    table = blocks(ROOT / "README.md", "text")[2]
    picture, _, history = table.partition("      the same history: ")
    marble = anabranch.model.parse_marble(picture)
    truth = anabranch.model.parse_events(history)
    for name in ("east", "west"):
        assert anabranch.model.History.of(marble.stream(name)).events() == truth


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
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
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


PUBLIC = {"anabranch", "anabranch.model", "anabranch.testing", "anabranch.windows"}
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


def test_inner_imports_are_found() -> None:
    program = "import anabranch as ab\nfrom anabranch import windows, batch\n"
    program += "from anabranch.operators.merge.policy import Policy\nimport anabranch.spark\n"
    assert inner_imports(program) == [
        "anabranch.batch",
        "anabranch.operators.merge.policy",
        "anabranch.spark",
    ]


def programs(*, spark: bool) -> list[object]:
    """The blocks of Python that need Spark, or those that do not, with their places."""
    return [
        pytest.param(text, id=f"{page.name}-{number}")
        for page in PAGES
        for number, text in enumerate(blocks(page, "python"), start=1)
        if ("ab.session(" in text) is spark
    ]


def run_block(program: str, folder: Path) -> None:
    """As a program of its own would run there, but in this process."""
    with contextlib.chdir(folder):
        exec(compile(program, "<block>", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("program", programs(spark=False))
def test_python_blocks_run(program: str, tmp_path: Path) -> None:
    run_block(program, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("program", programs(spark=True))
def test_python_blocks_run_on_spark(
    spark: "SparkSession",
    spark_folder: Path,
    program: str,
) -> None:
    # Spark resolves relative paths in the folder that it was started in, so all blocks run
    # there: what one leaves is removed, or the next would find a checkpoint of the same name.
    before = set(spark_folder.iterdir())
    try:
        run_block(program, spark_folder)
    finally:
        for left in set(spark_folder.iterdir()) - before:
            shutil.rmtree(left) if left.is_dir() else left.unlink()


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


def test_the_sizing_table_is_that_of_the_committed_result() -> None:
    result = ROOT / "benchmarks" / "results" / "merge_sizing.json"
    page = (ROOT / "docs" / "guide" / "cluster.md").read_text()
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
