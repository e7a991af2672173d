"""The program around the commands: help without Spark, near misses, exit codes, JSON errors."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from anabranch.cli.main import COMMANDS, cli, main


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "anabranch", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_interrupt_is_one_also_while_a_library_is_loaded(
    wrapped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(**_: object) -> None:
        if wrapped:  # as Python does while it makes a class
            message = "Error calling __set_name__"
            raise RuntimeError(message) from KeyboardInterrupt()
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "anabranch: interrupted; what was committed stays\n"


def test_another_failure_is_not_called_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(**_: object) -> None:
        message = "something else"
        raise RuntimeError(message)

    monkeypatch.setattr(cli, "main", failing)
    with pytest.raises(RuntimeError, match="something else"):
        main()


def test_help_lists_every_command_and_starts_nothing() -> None:
    program = (
        "import sys; from anabranch.cli.main import cli\n"
        "try: cli.main(['--help'], prog_name='anabranch')\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'pyarrow', 'numba', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    for name in COMMANDS:
        assert f"\n  {name} " in ran.stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_and_json(name: str) -> None:
    ran = CliRunner().invoke(cli, [name, "--help"])
    assert ran.exit_code == 0, ran.output
    assert "--json" in ran.output


def test_a_near_miss_is_named() -> None:
    ran = run("chekc")
    assert ran.returncode == 2
    assert "did you mean 'check'?" in ran.stderr


def test_an_unknown_word_gets_the_list() -> None:
    ran = run("zzz")
    assert ran.returncode == 2
    assert "generate" in ran.stderr


def test_an_error_is_a_sentence_and_an_exit_code() -> None:
    ran = run("check", "/nowhere")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("anabranch: FileError: /nowhere: there is no such file")


def test_an_error_under_json_is_json() -> None:
    ran = run("check", "/nowhere", "--json")
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["error"] == "input.file"


def test_version() -> None:
    import anabranch

    assert anabranch.__version__ in run("--version").stdout
