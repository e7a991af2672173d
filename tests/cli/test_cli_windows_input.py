"""What `anabranch windows` cannot use: a sentence with place and remedy, and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.errors import AnabranchError

GOOD = "time,price\n1,10\n2,20\n4,30\n"
BASIC = {"--value": "price", "--size": "2", "--agg": "avg", "--engine": "flink"}

FILES = {
    "empty": ("", r"the file is empty; expected a first line with column names"),
    "blank": ("\n\n", r"the file is empty"),
    "header only": ("time,price\n", r"no lines below the first"),
    "no such column": ("time,prize\n1,2\n", r"no column 'price' \(--value\); there are time, "
                       r"prize\. did you mean --value prize\?"),
    "two of a name": ("time,price,price\n1,2,3\n", r"2 columns are called 'price'"),
    "other separator": ("time;price\n1;2\n", r"separated by ';': use --delimiter ';'"),
    "not a number": ("time,price\n1,10\n2,ten\n", r"line 3: the value 'ten' is not a number"),
    "no value": ("time,price\n1,\n", r"line 2: the value '' is not a number"),
    "NaN": ("time,price\n1,10\n\n2,NaN\n", r"line 4: the value is NaN"),
    "infinite": ("time,price\n1,-inf\n", r"line 2: the value is -inf"),
    "no time": ("time,price\n,10\n", r"line 2: time '' is not a time"),
    "fraction": ("time,price\n1.5,10\n", r"line 2: time '1\.5' is not a time.*smaller unit"),
    "mixed times": ("time,price\n1,1\n2026-01-01,2\n", r"line 3: time '2026-01-01', but the "
                    "lines above have whole numbers"),
    "mixed times back": ("time,price\n2026-01-01,2\n1,1\n", r"lines above have timestamps"),
    "ragged": ("time,price\n1,2,3\n", r"line 2: 3 fields, the first line has 2"),
    "open quote": ('time,price\n1,"2\n', r"line \d: not CSV"),
}  # fmt: skip

OPTIONS = {
    "negative size": ({"--size": "-5"}, r"--size is -5; a window needs a length of at least 1"),
    "no size": ({"--size": "0"}, r"--size is 0"),
    "negative slide": ({"--slide": "-1"}, r"--slide is -1"),
    "text for integers": ({"--size": "5 minutes"}, r"--size '5 minutes': for bigint times"),
    "unknown engine": ({"--engine": "flnk"}, r"unknown engine 'flnk'; did you mean flink"),
    "half an engine": ({"--engine": "spark"}, r"did you mean .*spark-append"),
    "unknown setting": ({"--engine": "flink,grace=5"}, r"'grace=5' is not a setting.*lateness"),
    "setting without value": ({"--engine": "flink,delay"}, r"'delay' is not a setting"),
    "negative delay": ({"--engine": "flink,delay=-1"}, r"delay is -1"),
    "bad switch": ({"--engine": "spark-append,idle_batches=7"}, r"expected yes or no"),
    "a setting it has not": ({"--engine": "stream,delay=1"}, r"stream has no delay"),
    "unknown aggregate": ({"--agg": "mean"}, r"unknown aggregate 'mean'"),
    "no value column": ({"--value": None}, r"--agg avg needs values; name their column"),
    "slide above size": ({"--slide": "3", "--engine": "spark-append"}, r"no slide above"),
    "rows where there are none": ({"--by": "rows"}, r"flink has no windows of tuples"),
    "stable of another kind": ({"--stable": "2026-01-01"}, r"the file are whole numbers"),
    "stable that is none": ({"--stable": "soon"}, r"--stable 'soon' is not a time"),
    "stable by arrival": ({"--by": "arrival", "--stable": "9"}, r"--by arrival does not use"),
    "long separator": ({"--delimiter": ",,"}, r"expected one character"),
    "no picture": ({"--picture": "a.gif"}, r"expected a name that ends with \.svg or \.png"),
    "picture in no folder": ({"--picture": "/nowhere/a.svg"}, r"no folder /nowhere"),
    "batch is no column": ({"--batch": "b"}, r"no column 'b' \(--batch\)"),
}


def ask(path: object, changed: dict[str, str | None]) -> None:
    words = ["windows", "predict", "--input", str(path)]
    for option, value in (BASIC | changed).items():
        words += [] if value is None else [option, value]
    ran = CliRunner().invoke(cli, words)
    assert ran.stdout == ""
    assert ran.exception is not None, "it was taken"
    raise ran.exception


@pytest.mark.parametrize("case", FILES)
def test_files_that_cannot_be_used(case: str, tmp_path: Path) -> None:
    text, expected = FILES[case]
    path = tmp_path / "given.csv"
    path.write_text(text)
    with pytest.raises(AnabranchError, match=expected) as raised:
        ask(path, {})
    assert raised.value.exit_code == 2
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("case", OPTIONS)
def test_options_that_cannot_be_meant(case: str, tmp_path: Path) -> None:
    changed, expected = OPTIONS[case]
    path = tmp_path / "given.csv"
    path.write_text(GOOD)
    with pytest.raises(AnabranchError, match=expected) as raised:
        ask(path, changed)
    assert raised.value.exit_code == 2
    assert [one.name for one in tmp_path.iterdir()] == ["given.csv"]


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "trades.csv").write_text(GOOD)
    with pytest.raises(AnabranchError, match=r"no such file; did you mean .*trades\.csv"):
        ask(tmp_path / "trade.csv", {})


def test_a_folder_and_bytes_are_not_csv(tmp_path: Path) -> None:
    with pytest.raises(AnabranchError, match="is a folder; expected one CSV file"):
        ask(tmp_path, {})
    (tmp_path / "x.csv").write_bytes(b"time,price\n1,\xff\xfe\n")
    with pytest.raises(AnabranchError, match="not UTF-8 text"):
        ask(tmp_path / "x.csv", {})


@pytest.mark.parametrize("name", ["stream", "coral8", "streambase"])
def test_unordered_times_where_order_is_needed(name: str, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text("time,price\n2026-01-01T00:00:05Z,1\n2026-01-01T00:00:03Z,2\n")
    with pytest.raises(AnabranchError, match="item 2 has time 2026-01-01T00:00:03Z") as raised:
        ask(path, {"--engine": name, "--size": "2 seconds"})
    assert raised.value.exit_code == 2
    assert "needs tuples in order" in str(raised.value)


@pytest.mark.parametrize(
    ("engines", "expected"),
    [(["flink"], "compare got only flink"), (["flink", "flink"], "compare got flink twice")],
)
def test_compare_needs_two(engines: list[str], expected: str, tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text(GOOD)
    words = ["windows", "compare", "--input", str(path), "--size", "2"]
    ran = CliRunner().invoke(cli, words + [w for name in engines for w in ("--engine", name)])
    assert expected in str(ran.exception)


def test_a_byte_order_mark_and_spaces_are_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "given.csv"
    path.write_text("\ufefftime, price\n 1, 10\n 5, 20\n", encoding="utf-8")
    ran = CliRunner().invoke(
        cli, ["windows", "predict", "--input", str(path), "--value", "price", "--size", "2",
              "--agg", "sum", "--engine", "flink", "--no-timeline"])  # fmt: skip
    assert ran.output == "flink: (10)\n"


def test_the_program_reports_it_in_one_line_and_exits_2(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "anabranch", "windows", "predict", "--input",
         str(tmp_path / "no.csv"), "--size", "2", "--engine", "flink"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 2
    assert ran.stderr.startswith("anabranch: FileError: ")
    assert ran.stdout == ""
