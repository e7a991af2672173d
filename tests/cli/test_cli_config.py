"""Settings: who wins, what is refused, and that `config` shows where each comes from."""

import json
import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

from anabranch.cli.config import command
from anabranch.cli.settings import KEYS, load
from anabranch.errors import FileError, UsageError


def test_defaults_come_from_the_machine(tmp_path: Path) -> None:
    loaded = load(environment={"XDG_CONFIG_HOME": str(tmp_path)}, folder=tmp_path)
    assert {value.origin for value in loaded.values.values()} == {"default"}
    assert loaded.master == "local[*]"
    assert loaded.lanes >= 1
    assert loaded.warn_share == 0.01
    assert (loaded.driver_memory, loaded.max_bytes_per_trigger) == ("512m", 128 << 20)
    assert loaded.log_file is None
    assert loaded.file is None


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "anabranch.toml"
    file.write_text('master = "local[1]"\nlanes = 3\ndriver_memory = "3g"\nwarn_share = 0.2\n')
    environment = {"ANABRANCH_LANES": "5", "ANABRANCH_MASTER": "local[2]"}
    loaded = load(
        flags={"master": "local[4]", "lanes": None}, environment=environment, folder=tmp_path
    )
    origins = {name: value.origin for name, value in loaded.values.items()}
    assert (loaded.master, origins["master"]) == ("local[4]", "flag --master")
    assert (loaded.lanes, origins["lanes"]) == (5, "environment ANABRANCH_LANES")
    assert (loaded.driver_memory, origins["driver_memory"]) == ("3g", f"file {file}")
    assert (loaded.warn_share, origins["warn_share"]) == (0.2, f"file {file}")
    assert origins["cache_dir"] == "default"


def test_one_file_is_read_the_named_then_the_local_then_the_users(tmp_path: Path) -> None:
    users = tmp_path / "config" / "anabranch" / "config.toml"
    users.parent.mkdir(parents=True)
    named, local = tmp_path / "named.toml", tmp_path / "anabranch.toml"
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    for lanes, file in enumerate((users, local, named), start=1):
        file.write_text(f"lanes = {lanes}\n")
        if file == named:
            environment["ANABRANCH_CONFIG"] = str(named)
        loaded = load(environment=environment, folder=tmp_path)
        assert (loaded.lanes, loaded.file) == (lanes, file)


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"ANABRANCH_CONFIG names .*gone\.toml"):
        load(environment={"ANABRANCH_CONFIG": str(tmp_path / "gone.toml")})


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("drivermemory = '2g'", UsageError, "did you mean 'driver_memory'"),
        ("zzz = 1", UsageError, "known are master"),
        ("lanes = 0", UsageError, "lanes must be a whole number from 1, not 0"),
        ("warn_share = 1.5", UsageError, "a share from 0 to 1, such as 0.01, not 1.5"),
        ("warn_share = 'few'", UsageError, "a share from 0 to 1"),
        ("lanes = true", UsageError, "must be a text or a number, not True"),
        ("driver_memory = 'lots'", UsageError, "such as 2g"),
        ("master = ' '", UsageError, "not empty"),
        ("lanes = ", FileError, "must be TOML"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    tmp_path: Path, text: str, error: type[Exception], words: str
) -> None:
    file = tmp_path / "anabranch.toml"
    file.write_text(text)
    with pytest.raises(error) as raised:
        load(environment={}, folder=tmp_path)
    assert words in str(raised.value)
    assert str(file) in str(raised.value)


def test_paths_are_absolute_and_know_the_home(tmp_path: Path) -> None:
    environment = {"ANABRANCH_LOG_FILE": "~/spark.log", "ANABRANCH_CACHE_DIR": "x"}
    loaded = load(environment=environment, folder=tmp_path)
    assert loaded.log_file == Path.home() / "spark.log"
    assert loaded.cache_dir == Path.cwd() / "x"


def test_a_misspelt_variable_is_named_and_a_foreign_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    environment = {"ANABRANCH_DRIVER_MEMROY": "2g", "ANABRANCH_WHATEVER": "1"}
    logging.getLogger("anabranch").propagate = True  # caplog listens at the root
    load(environment=environment, folder=tmp_path)
    assert "did you mean ANABRANCH_DRIVER_MEMORY?" in caplog.text
    assert "WHATEVER" not in caplog.text


def test_the_command_shows_every_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_LANES", "7")
    shown = CliRunner().invoke(command, [], catch_exceptions=False).stdout
    assert all(key.name in shown for key in KEYS)
    answer = json.loads(CliRunner().invoke(command, ["--json"], catch_exceptions=False).stdout)
    assert answer["settings"]["lanes"] == {"value": 7, "origin": "environment ANABRANCH_LANES"}
    assert set(answer["settings"]) == {key.name for key in KEYS}
