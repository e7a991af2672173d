"""Our own small linters: sizes, names, rooms, and the words of the tracked files.

ruff, mypy and import-linter see to the rest; `make check` runs them all.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORDS = tomllib.loads((ROOT / ".ci" / "words.toml").read_text())
MOST_EXCEPTIONS = 20

LONGEST_FILE = 500
LONGEST_BODY = 40
HOLLOW_NAMES = {"utils.py", "helpers.py", "common.py", "misc.py"}
# Private, or absent from Spark Connect: what is written for one session must run on the other.
PRIVATE_SPARK = {
    "_jvm", "_jdf", "_jc", "_sc", "_jsc", "_jsparkSession", "_jsq", "_jconf", "_jwrite",
    "_gateway", "_client", "_plan", "_instantiatedSession", "rdd", "toJavaRDD", "sparkContext",
    "getActiveSession", "sqlContext",
}  # fmt: skip
INNER_SPARK = re.compile(r"(py4j|pyspark\.(sql\.(connect|classic)|java_gateway)|.*\._)")
# Written in halves, so that this file does not find itself.
REGISTRIES = [
    half + ".org" for half in ("pypi", "pythonhosted", "maven", "maven.apache", "anaconda")
]


OPERATORS = ROOT / "src" / "anabranch" / "operators"
HOUSE = {"abilities", "contract", "key", "pipeline", "route", "state"}
"""What the lanes know of operators."""
FACES = {"fluent", "grouped", "levels", "merge", "merged", "planned", "streams", "windows"}
"""Modules of spark with the public calls that make an operator each: they alone name one."""


def tracked() -> list[Path]:
    """Files that belong to the project: those that git tracks, or would after an add of all."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in names.splitlines() if (ROOT / name).is_file()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function with the number of lines of its body, its docstring not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skip = 1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0
            first, last = node.body[skip].lineno, node.body[-1].end_lineno
            yield node.name, (last or first) - first + 1


def test_files_are_short() -> None:
    sizes = {name_of(path): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: size for name, size in sizes.items() if size > LONGEST_FILE} == {}


def test_functions_are_short() -> None:
    long = [
        f"{name_of(path)}: {name} has {size} lines"
        for path in python_files()
        for name, size in functions(path)
        if size > LONGEST_BODY
    ]
    assert long == []


def test_kernels_are_typed() -> None:
    """mypy finds missing annotations; `Any` would hide what a kernel is compiled for."""
    found = [
        f"{name_of(path)}: {node.name}"
        for path in SOURCES
        if "batch.kernel" in (text := path.read_text())
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        and {ast.unparse(one) for one in node.decorator_list} & {"kernel", "part"}
        and re.search(
            r"\bAny\b", ast.unparse(node.args) + ast.unparse(node.returns or node.args)
        )
    ]
    assert not found, "\n".join(found)


def test_no_file_has_a_hollow_name() -> None:
    assert [name_of(path) for path in tracked() if path.name in HOLLOW_NAMES] == []


def test_every_module_opens_with_its_promise() -> None:
    silent = [
        name_of(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert silent == []


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in python_files() if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))


def private_spark(code: str) -> Iterator[str]:
    """Whatever of a program is private to Spark, or only on a classic session."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE_SPARK:
            yield f"line {node.lineno}: .{node.attr}"
        names = []
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{one.name}" for one in node.names]
        for name in names:
            spark = name.startswith(("pyspark", "py4j"))
            if spark and (INNER_SPARK.match(name) or name == "pyspark.SparkContext"):
                yield f"line {node.lineno}: {name}"


def test_only_public_spark_is_used() -> None:
    found = {name_of(path): list(private_spark(path.read_text())) for path in SOURCES}
    assert {name: used for name, used in found.items() if used} == {}


@pytest.mark.parametrize(
    "code",
    [
        "df._jdf.count()",
        "spark.sparkContext.setLogLevel('WARN')",
        "rows = df.rdd.map(len)",
        "from pyspark import SparkContext",
        "from pyspark.sql.connect.session import SparkSession",
        "import py4j.protocol",
        "from pyspark.sql.streaming._x import y",
    ],
)
def test_private_spark_is_found(code: str) -> None:
    assert len(list(private_spark(code))) == 1


def test_no_file_names_a_package_registry() -> None:
    naming = []
    for path in tracked():
        try:
            text = path.read_text().lower()
        except UnicodeDecodeError:
            continue
        naming += [f"{name_of(path)}: {host}" for host in REGISTRIES if host in text]
    assert naming == []


def test_files_named_by_the_papers_page_exist() -> None:
    page = ROOT / "docs" / "papers.md"
    named = re.findall(r"`((?:src|tests|benchmarks|examples|docs)/[^`\s:]+)", page.read_text())
    assert named, "the page must name the file to which each paper section went to"
    assert [name for name in named if not (ROOT / name).exists()] == []


def prose() -> list[Path]:
    """The files that the writing rules hold for: what users and maintainers read."""
    rooms = {"src", "docs", "examples", "tests", "benchmarks", ".ci"}
    return [
        path
        for path in tracked()
        if path.suffix in {".py", ".md", ".case"}
        and (path.parent == ROOT or path.relative_to(ROOT).parts[0] in rooms)
    ]


def banned(text: str) -> Iterator[tuple[int, str]]:
    """Each use of a word that the writing rules reject: its offset and the word.

    Underscores part words, as blanks do, and a phrase may cross the end of a line.
    """
    lower = text.lower()
    for word in WORDS["words"]:
        parts = word.split()
        if parts[0] not in lower:  # most files have none: a quick look first
            continue
        inner = r"[\s#_]+".join(map(re.escape, parts))
        for match in re.finditer(rf"(?<![a-z]){inner}(?![a-z])", lower):
            yield match.start(), word


def without(text: str, exceptions: list[str]) -> str:
    """The text with excepted passages blanked; offsets and lines stay."""
    for passage in exceptions:
        text = text.replace(passage, re.sub(r"\S", " ", passage))
    return text


def test_no_page_or_module_uses_a_banned_word() -> None:
    found = []
    for path in prose():
        excepted = [one["text"] for one in WORDS["exceptions"] if one["file"] == name_of(path)]
        text = without(path.read_text(), excepted)
        for offset, word in banned(text):
            line = text.count("\n", 0, offset) + 1
            found.append(f"{name_of(path)}:{line}: '{word}': {WORDS['words'][word]}")
    assert not found, "\n".join(["CONTRIBUTING.md, Writing:", *sorted(found)])


def test_exceptions_to_the_words_are_few_have_reasons_and_occur() -> None:
    exceptions = WORDS["exceptions"]
    assert len(exceptions) <= MOST_EXCEPTIONS
    for one in exceptions:
        assert set(one) == {"file", "text", "reason"}
        assert len(one["reason"].split()) > 2, one
        assert one["text"] in (ROOT / one["file"]).read_text(), f"stale: {one}"
        assert list(banned(one["text"])), f"needs no exception: {one}"


@pytest.mark.parametrize(
    "text", ["it H" + "ears", "he" + "ard_at", "look so\n    #" + " often"]
)
def test_banned_words_are_found(text: str) -> None:
    assert len(list(banned(text))) == 1


@pytest.mark.parametrize("text", ["hearts", "compressed", "so oftentimes"])
def test_other_words_are_not_banned(text: str) -> None:
    assert list(banned(text)) == []


def locked() -> dict[str, list[str]]:
    """Name to the versions that the lock gives it (several where markers part them)."""
    versions: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if match := re.match(r"([a-z0-9-]+)(?:\[[^]]*\])?==(\S+)", line):
            versions.setdefault(match[1], []).append(match[2])
    return versions


def test_the_lock_agrees_with_the_declared_ranges() -> None:
    declared = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    declared += [
        requirement
        for extra in PROJECT["project"]["optional-dependencies"].values()
        for requirement in extra
    ]
    versions = locked()
    wrong = [
        text
        for text in declared
        if not versions.get(Requirement(text).name)
        or not all(map(Requirement(text).specifier.contains, versions[Requirement(text).name]))
    ]
    assert wrong == [], "run `make lock`"


def test_the_notice_lists_every_runtime_dependency_with_its_licence() -> None:
    notice = (ROOT / "NOTICE").read_text()
    texts = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["java"],
    ]
    for name in (Requirement(text).name for text in texts):
        line = next((line for line in notice.splitlines() if line.startswith(f"{name} ")), None)
        assert line is not None, f"NOTICE has no line for {name}"
        # Only an SPDX expression can be compared; older metadata has free text.
        expression = metadata(name).get("License-Expression")
        if expression:
            assert expression in line, f"NOTICE has another licence for {name}"


@pytest.mark.parametrize(
    "code",
    [
        "import anabranch",
        "from anabranch.cli.main import cli; cli.main(['--help'], standalone_mode=False)",
    ],
    ids=["import", "help"],
)
def test_neither_import_nor_help_loads_spark_or_compilers(code: str) -> None:
    heavy = {"pyspark", "numba", "pandas", "pyarrow"}
    script = f"{code}\nimport sys\nprint('LOADED', sorted({heavy!r} & set(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines()[-1] == "LOADED []"


def test_bare_make_lists_every_command() -> None:
    ran = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^\.PHONY: ([a-z-]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = [line.split()[1] for line in ran.stdout.splitlines()]
    assert listed == targets
    assert all(len(line.split()) > 3 for line in ran.stdout.splitlines())


def test_lanes_packers_and_writers_may_import_no_operator() -> None:
    """The import contract lists every module of the operators but those of the house."""
    modules = {path.stem for path in OPERATORS.iterdir() if not path.name.startswith("__")}
    (contract,) = (
        one
        for one in PROJECT["tool"]["importlinter"]["contracts"]
        if one["name"].startswith("Lanes, packers and writers")
    )
    listed = {name.rpartition(".")[2] for name in contract["forbidden_modules"]}
    assert listed == modules - HOUSE


def test_the_public_calls_alone_name_operators_in_spark() -> None:
    naming = set()
    for path in (ROOT / "src" / "anabranch" / "spark").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
                "anabranch.operators."
            ):
                names = {alias.name for alias in node.names} - {"Operator"}
                naming |= {path.stem for name in names if name.endswith("Operator")}
    assert naming == FACES
