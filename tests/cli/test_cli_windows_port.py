"""`anabranch windows translate` and `choose`: streams that show the answer, exit codes."""

import json

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.errors import UsageError


def windows(*words: str) -> Result:
    return CliRunner().invoke(cli, ["windows", *words])


def test_tumbling_streambase_is_flink() -> None:
    ran = windows("translate", "--from", "streambase", "--to", "flink", "--size", "3")
    assert ran.exit_code == 0, ran.output
    lines = ran.output.splitlines()
    assert lines[0].startswith("streambase, size 3, slide 3: no difference on ")
    assert lines[1].startswith("  flink, size 3, slide 3,")
    assert "instead of" in ran.output, "each candidate that differs has its stream"


def test_where_nothing_is_the_same_the_answer_is_no_and_shown() -> None:
    words = ("translate", "--from", "stream", "--to", "streambase", "--size", "5")
    ran = windows(*words, "--slide", "1", "--json")
    assert ran.exit_code == 1, ran.output
    answer = json.loads(ran.output)
    assert answer["same"] == []
    assert all(one["tuples"] and one["got"] != one["wanted"] for one in answer["differ"])


def test_properties_of_the_input_reach_the_search() -> None:
    words = ("translate", "--from", "stream", "--to", "coral8", "--size", "2", "--slide", "1")
    answer = [json.loads(windows(*words, "--json", *more).output)["streams"] for more in (
        (), ("--no-gaps",), ("--no-simultaneous",), ("--batches", "any"),
    )]  # fmt: skip
    assert len(set(answer)) == 4, "each asks about other streams"


def test_choose_names_those_that_fit_and_why_others_do_not() -> None:
    words = ("choose", "--need", "no-repeats", "--need", "soon", "--json")
    ran = windows(*words, "--engine", "stream", "--engine", "coral8")
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.output)
    assert answer["fits"] == ["coral8"]
    assert [one["engine"] for one in answer["lacks"]] == ["stream"]
    assert windows(*words, "--engine", "stream").exit_code == 1


def test_choose_without_needs_lists_them() -> None:
    ran = windows("choose")
    assert ran.exit_code == 0
    assert "no-repeats: " in ran.output
    assert set(json.loads(windows("choose", "--json").output)["needs"]) == {
        line.split(":")[0] for line in ran.output.splitlines()
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["choose", "--need", "no-repeat"], "did you mean 'no-repeats'"),
        (["choose", "--need", "soon", "--engine", "flnk"], "did you mean flink"),
        (["translate", "--from", "strem", "--to", "flink", "--size", "2"], "did you mean"),
        (["translate", "--from", "flink", "--to", "flink", "--size", "2", "--agg", "mean"],
         "unknown aggregate"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant(words: list[str], expected: str) -> None:
    ran = windows(*words)
    assert isinstance(ran.exception, UsageError), ran.output
    assert expected in str(ran.exception)


@pytest.mark.parametrize("size", ["0", "-3", "2.5", "5 minutes"])
def test_a_size_is_a_whole_number(size: str) -> None:
    ran = windows("translate", "--from", "flink", "--to", "flink", "--size", size)
    assert ran.exit_code == 2
    assert "--size" in ran.output
