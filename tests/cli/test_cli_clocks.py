"""`anabranch clocks estimate`: settings, files of each format, pictures, JSON, errors."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.clocks.settings import from_toml
from anabranch.errors import FileError, InputError, SchemaError, UsageError

ROOT = Path(__file__).parents[2]
SPIKES = str(ROOT / "examples" / "clocks_spikes.csv")
COLUMNS = ["--time", "ts", "--arrival", "arrived", "--source", "sensor"]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, ["clocks", "estimate", *words], catch_exceptions=False)


def stream(path: Path, late_seconds: int, rows: int = 10_000) -> str:
    """One row in 10,000 is late by that much; all others are in order."""
    lines = ["ts"]
    for n in range(rows):
        at = n - (late_seconds if n == rows - 2 else 0)
        lines.append(f"2026-01-31T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_the_settings_of_spark_and_flink(tmp_path: Path) -> None:
    path = stream(tmp_path / "a.csv", 251)
    ran = run(path, "--time", "ts", "--loss", "0")
    assert "spark: use withWatermark('ts', '4 minutes 10 seconds'): 0 % late" in ran.output
    assert "forBoundedOutOfOrderness(Duration.ofMillis(250000)): 0 % late" in ran.output
    ran = run(path, "--time", "ts", "--loss", "0.0001")
    assert "spark: use withWatermark('ts', '0 seconds'): 0.01 % late" in ran.output
    assert "disorder only" in ran.output
    assert ran.exit_code == 0


def test_spikes_are_a_matter_of_loss() -> None:
    everything = json.loads(run(SPIKES, *COLUMNS, "--loss", "0", "--json").output)
    most = json.loads(run(SPIKES, *COLUMNS, "--loss", "0.01", "--json").output)
    assert everything["share_late"] == 0
    assert most["share_late"] <= 0.01
    assert everything["disorder"] > 20 * most["disorder"]
    assert [one["name"] for one in most["sources"]] == ["north", "south"]
    assert len(most["skew"]) == 2
    assert most["sources"][1]["longest_pause"] > 180_000_000
    assert "flink idle" in most["settings"]


def test_the_guide_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "guide" / "lateness.md").read_text()
    printed = run(SPIKES, *COLUMNS, "--loss", "0.01").output
    assert f"```text\n{printed}```" in page


def test_the_plot_is_drawn_in_the_terminal_and_into_files(tmp_path: Path) -> None:
    svg, png = tmp_path / "loss.svg", tmp_path / "loss.png"
    ran = run(SPIKES, *COLUMNS, "--picture", str(svg), "--picture", str(png))
    assert "delay against loss" in ran.output
    assert "█" in ran.output
    assert svg.read_text().startswith("<svg")
    assert "late" in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")


def test_bounds_are_written_as_toml(tmp_path: Path) -> None:
    target = tmp_path / "bounds.toml"
    run(SPIKES, *COLUMNS, "--loss", "0.01", "--bounds", str(target))
    found = from_toml(target.read_text())
    assert found.sources == ("north", "south")
    assert all(found.pairs[i][j] for i in range(2) for j in range(2))


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv"])
def test_every_format_gives_the_same_answer(tmp_path: Path, name: str) -> None:
    times = [10, 20, 15, 30, 12]
    arrivals = [1, 2, 3, 4, 5]
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"t": times, "at": arrivals}), path)
    elif name.endswith("jsonl"):
        rows = zip(times, arrivals, strict=True)
        path.write_text("".join(json.dumps({"t": t, "at": at}) + "\n" for t, at in rows))
    else:
        rows = zip(times, arrivals, strict=True)
        path.write_text("t,at\n" + "".join(f"{t},{at}\n" for t, at in rows))
    ran = run(str(path), "--time", "t", "--arrival", "at", "--loss", "0.2")
    assert "disorder(5): 20 % late" in ran.output
    assert "spark" not in ran.output, "withWatermark needs timestamps"


def test_timestamps_of_parquet_and_texts_with_zones(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    stamps = pa.array([10_000, 20_000, 15_000], pa.timestamp("ms", tz="Europe/Vienna"))
    texts = ["2026-01-31T10:00:00+01:00", "2026-01-31T09:00:10Z", "2026-01-31T09:00:11"]
    pq.write_table(pa.table({"ts": stamps, "text": texts}), path)
    assert "withWatermark('ts', '5 seconds')" in run(str(path), "--time", "ts").output
    found = json.loads(run(str(path), "--time", "text", "--json").output)
    assert (found["times"], found["disorder"]) == ("timestamp", 0)


@pytest.mark.parametrize(
    ("name", "content", "options", "error", "message"),
    [
        ("gone.csv", None, [], FileError, "there is no such file"),
        ("a.txt", "ts\n1\n", [], FileError, "ends with one of .csv"),
        ("a.csv", "tss\n1\n", [], SchemaError, "did you mean --time tss"),
        ("a.csv", "x;ts\n1;2\n", [], SchemaError, "name the separator with --delimiter"),
        ("a.csv", "ts\n", [], InputError, "there are no rows"),
        ("a.csv", "ts\nyes\nno\n", [], InputError, "row 1: 'yes' is not a time"),
        ("a.csv", "ts,x\n1,1\n,1\n", [], InputError, "row 2 has no time"),
        ("a.csv", "ts\n1.5\n", [], InputError, "'1.5' is not a time; expected a whole"),
        ("a.jsonl", '{"ts": 1.5}\n', [], SchemaError, "expected whole numbers or timest"),
        ("a.csv", "ts\n1\n2026-01-31T09:00:00Z\n", [], InputError, "of the other kind"),
        ("a.csv", "ts,x\n1\n", [], InputError, "cannot be read as csv"),
        ("a.jsonl", "{]\n", [], InputError, "cannot be read as json"),
        ("a.csv", "ts\n1\n", ["--delimiter", ";;"], UsageError, "expected one character"),
        ("a.csv", "ts\n1\n", ["--picture", "x.gif"], UsageError, "ends with .svg or .png"),
        ("a.csv", "ts\n1\n", ["--bounds", "/no/such/b.toml"], FileError, "cannot be written"),
    ],
)
def test_errors_name_the_file_and_the_remedy(
    tmp_path: Path,
    name: str,
    content: str | None,
    options: list[str],
    error: type,
    message: str,
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=message):
        run(str(path), "--time", "ts", *options)


def test_many_sources_are_shown_by_need(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{n},s{n % 30}" for n in range(300)]
    path.write_text("ts,source\n" + "\n".join(rows) + "\n")
    ran = run(str(path), "--time", "ts", "--source", "source", "--no-plot")
    assert "... and 10 more sources that need less" in ran.output
    assert "300 rows of 30 sources" in ran.output
