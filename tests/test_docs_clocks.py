"""Numbers on the pages about clocks are those of the committed results."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_what_a_clock_costs_is_that_of_the_committed_result() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "clocks_cost.json").read_text())
    page = (ROOT / "docs" / "guide" / "clocks.md").read_text()
    clock, packer = found["clock"], found["packer"]
    column, mapping, alone = (
        f"100000_{n}" for n in ("by_group_column", "by_mapping", "not_grouped")
    )
    for words in (
        f"a clock costs {clock[column]} times as much, with a mapping from source to group "
        f"{clock[mapping]} times",
        f"these are {packer[column]} and {packer[mapping]} times",
        f"{clock[alone]} times, and {packer[alone]} times of a packer",
        f"take {clock['learned']} times as long as fixed ones, a quantile {clock['quantile']} "
        f"times, and {packer['quantile']} times of a packer",
    ):
        assert words in page
    align = json.loads((ROOT / "benchmarks" / "results" / "align.json").read_text())
    assert f"`align` takes {align['merge_and_align_to_merge']} times the CPU time" in page


def test_the_cpu_of_an_idle_query_is_that_of_the_committed_result() -> None:
    text = (ROOT / "benchmarks" / "results" / "heartbeats_spark.json").read_text()
    used = {name: one["cpu_seconds_per_hour"] for name, one in json.loads(text)["idle"].items()}
    words = "{heartbeats} seconds of CPU with heartbeats whose sources are all idle, {stables} "
    page = (ROOT / "docs" / "guide" / "idle-source.md").read_text()
    assert words.format(**used) in page
