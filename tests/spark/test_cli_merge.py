"""`anabranch merge` and `anabranch demo` as a person types them."""

import json
import os
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from merge_place import Place

from anabranch.cli.main import cli
from anabranch.errors import AnabranchError, FileError, SchemaError

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command in this process, on the session that is there."""
    monkeypatch.setenv("ANABRANCH_MASTER", "local[2]")
    monkeypatch.setenv("ANABRANCH_DRIVER_MEMORY", "1g")

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(cli, [str(word) for word in words])

    return invoke


def folders(place: Place) -> list[object]:
    return [place.inbox, "--output", place.output, "--checkpoint", place.checkpoint]


def test_generate_merge_check(run: Any, place: Place) -> None:
    words = ["--events", 200, "--payload-bytes", 8, "--reference", place.truth]
    assert run("generate", place.inbox, *words).exit_code == 0
    merged = run("merge", *folders(place), "--once")
    assert merged.exit_code == 0, merged.output
    assert "buckets add up" in merged.output
    assert "0 events open" in merged.output
    checked = run("check", place.output, place.truth)
    assert checked.exit_code == 0, checked.output
    assert "the histories are the same" in checked.output


def test_plain_rows_name_their_sources_and_arrivals(run: Any, place: Place) -> None:
    for name in ("east", "west"):
        (place.inbox / name).mkdir(parents=True)
        rows = [{"at": at, "from": "a" if at > 50 else "b"} for at in (100, 40, 97)]
        came = "2026-01-01T00:00:00Z"
        lines = [json.dumps(row | {"came": came}) for row in rows]
        (place.inbox / name / "1.jsonl").write_text("\n".join(lines))
    words = ["--time", "at", "--disorder", 5, "--source", "from", "--arrival", "came"]
    ran = run("merge", *folders(place), "--once", "--json", *words)
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout.splitlines()[-1])
    assert report["frontier"] == 35, "of the slower source"
    assert report["adds_up"] is True
    payload = pq.read_schema(next((place.output / "elements").glob("*.parquet"))).names
    assert "from" in payload
    assert "came" not in payload
    shown = run("merge", *folders(place), "--once", *words[:2], "--source", "from")
    assert "give disorder=" in str(shown.exception)


def test_plain_rows_with_a_delay_and_a_guard_end_with_complete(run: Any, place: Place) -> None:
    """A row of the future is merged and named; then all replicas end, and it is final too."""
    for name in ("east", "west"):
        (place.inbox / name).mkdir(parents=True)
        rows = [{"ts": f"{year}-01-01T00:00:00Z", "id": year} for year in (2024, 2025, 2999)]
        (place.inbox / name / "1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["--time", "ts", "--delay", "1 minute", "--guard", "30 minutes", "--once"]
    ran = run("merge", *folders(place), *words, "--idle-after", "1 hour")
    assert ran.exit_code == 0, ran.output
    warned = "east, west sent times too far in the future"
    assert warned in " ".join(ran.stdout.split())
    assert "3 events open" in ran.output, "the first look promises nothing yet"
    ran = run("merge", *folders(place), *words, "--disorder", "1 hour", "--complete", "--json")
    assert ran.exit_code == 0, ran.output
    report = json.loads(ran.stdout.splitlines()[-1])
    assert (report["frontier"], report["live"]) == ("forever", 0)
    stated = json.loads((place.checkpoint / "_run.json").read_text())["clocks"]
    assert [words for _, words in stated] == [
        "every replica: delay 1 minute, idle after 1 hour, guard 30 minutes",
        "every replica: disorder 1 hour, delay 1 minute, guard 30 minutes",
    ]


def test_json_is_a_line_per_trigger_and_the_account(run: Any, place: Place) -> None:
    place.generate(events=50)
    ran = run("merge", *folders(place), "--once", "--json")
    *triggers, report = map(json.loads, ran.stdout.splitlines())
    assert report["adds_up"] is True
    assert report["quarantined"] == 0
    assert set(report["replicas"]) == {"r0", "r1", "r2"}
    assert report["lanes"] == 2
    assert [one["trigger"] for one in triggers] == [0]
    facts = set(triggers[0]["replicas"]["r0"])
    assert facts >= {"rows", "emitted", "pending", "frontier", "lag", "standing"}
    assert triggers[0]["rows"] == report["rows"] > 0
    assert triggers[0]["frontier"] == "forever"
    assert triggers[0]["leader"] in report["replicas"]
    assert triggers[0]["state_bytes"] > 0
    began = datetime.fromisoformat(triggers[0]["timestamp"])
    assert began.utcoffset() == timedelta(0)
    assert triggers[0]["duration_ms"] > 0


def test_the_first_line_shows_spark_and_how_to_see_its_ui(run: Any, place: Place) -> None:
    place.generate(events=50)
    ran = run("merge", *folders(place), "--once", "--conf", "spark.ui.enabled=false")
    first = ran.stderr.splitlines()[0]
    about = {
        "classic": r"; its UI is off, .*enabled=true .*",
        "connect": ", by Spark Connect: the UI is the server's",
    }[os.environ.get("ANABRANCH_SPARK", "classic")]
    assert re.fullmatch(rf"Spark 4\.\S+ on local\[2\]{about}", first)


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ("spark.ui.enabled", "expected KEY=VALUE"),
        ("ui.enabled=true", "begins with spark."),
        ("=true", "expected KEY=VALUE"),
        ("spark.master=local[3]", r"with --master local\[3\]"),
        ("spark.ui.enabled=true", "spark.ui.enabled='true' was requested, but a session runs"),
    ],
)
def test_settings_of_spark_reach_the_session_or_are_rejected(
    run: Any, place: Place, conf: str, words: str
) -> None:
    place.generate(events=50)
    ran = run("merge", *folders(place), "--once", "--conf", conf)
    assert isinstance(ran.exception, AnabranchError)
    assert re.search(words, str(ran.exception)), ran.exception
    assert not place.output.exists()


def test_many_rows_that_were_not_merged_are_warned_of_once(run: Any, place: Place) -> None:
    place.generate(events=50)
    bad = pq.read_table(next((place.inbox / "r0").glob("*.parquet")))
    at = bad.schema.get_field_index("kind")
    bad = bad.set_column(at, "kind", pa.array(["upsert"] * bad.num_rows))
    pq.write_table(bad, place.inbox / "r1" / "part-99999.parquet")
    ran = run("merge", *folders(place), "--once")
    [found] = [line for line in ran.stderr.splitlines() if "warn_share" in line]
    assert "rows broke a promise or are not elements, of " in found
    assert f"look into {place.output}/violations" in found


def test_quarantined_rows_make_the_exit_code_one(run: Any, place: Place) -> None:
    rows = [{"kind": "insert", "start": 5, "end": 4, "name": "a"}]
    file = place.inbox / "x" / "1.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows), file)
    ran = run("merge", *folders(place), "--once")
    assert ran.exit_code == 1
    assert "1 rows kept in" in ran.output


def test_neither_once_nor_watch_is_bad_use(run: Any, place: Place) -> None:
    ran = run("merge", *folders(place))
    assert ran.exit_code == 2
    assert "--once" in ran.output


def columns(**changes: Any) -> pa.Table:
    plain = {"kind": ["insert"], "start": [1], "end": [2], "name": ["a"]}
    kept = {name: values for name, values in {**plain, **changes}.items() if values is not None}
    return pa.table(kept)


BAD = {
    "no column 'end'": (columns(end=None), SchemaError),
    "column 'start' is string, expected bigint or timestamp": (
        columns(start=["monday"]),
        SchemaError,
    ),
    "column 'tags' is map": (
        columns().append_column(
            "tags", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))
        ),
        SchemaError,
    ),
}


@pytest.mark.parametrize("words", sorted(BAD))
def test_what_a_footer_shows_is_refused_and_nothing_is_written(
    run: Any, place: Place, words: str
) -> None:
    table, kind = BAD[words]
    file = place.inbox / "x" / "1.parquet"
    file.parent.mkdir(parents=True)
    pq.write_table(table, file)
    ran = run("merge", *folders(place), "--once")
    assert isinstance(ran.exception, kind)
    assert ran.exception.exit_code == 2
    assert words in str(ran.exception)
    assert "1.parquet" in str(ran.exception) or str(place.inbox) in str(ran.exception)
    assert not place.output.exists()
    assert not place.checkpoint.exists()


@pytest.mark.parametrize("content", [b"PAR1 half", b"", b"hello"])
def test_a_half_written_file_is_refused_by_name(run: Any, place: Place, content: bytes) -> None:
    place.generate(events=50)
    (place.inbox / "r1" / "part-00009.parquet").write_bytes(content)
    ran = run("merge", *folders(place), "--once")
    assert isinstance(ran.exception, FileError)
    assert "part-00009.parquet" in str(ran.exception)
    assert not place.output.exists()


def test_an_empty_inbox_is_refused(run: Any, place: Place) -> None:
    place.inbox.mkdir()
    ran = run("merge", *folders(place), "--once")
    assert isinstance(ran.exception, FileError)
    assert "there is no data in it" in str(ran.exception)


def test_the_demo_ends_with_the_account_and_a_yes(run: Any, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    ran = run("demo", "--events", 500, "--seconds", 2, "--keep", kept)
    assert ran.exit_code == 0, ran.output
    assert "buckets add up" in ran.output
    assert "check: Yes: every promise is kept, and the histories are the same." in ran.output
    assert {path.name for path in kept.iterdir()} == {"inbox", "truth", "out", "checkpoint"}


def test_the_demo_fails_when_the_truth_is_another(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.generator.workload import Workload

    real = Workload.history

    def less(workload: Workload, **options: Any) -> pa.Table:
        return real(workload, **options).slice(1)

    monkeypatch.setattr(Workload, "history", less)
    ran = run("demo", "--events", 300, "--seconds", 2)
    assert ran.exit_code == 1
    assert "check: No: the histories differ" in ran.output
