"""A page is read as steps, and walking it finds what is not as the page shows."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

CI = Path(__file__).parents[1] / ".ci"

PAGE = """# A page

`greet.py`:

```python
import sys

print("hello", *sys.argv[1:])
```

```console
$ name=you
$ python greet.py $name
```

```text
hello you
```

<!-- broker -->
```python
import no_such_module
```

```console
$ python greet.py | tr a-z A-Z
```

Prose ends what a block prints.

```text
not compared
```
"""


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(CI)
    monkeypatch.delitem(sys.modules, "pages", raising=False)
    return importlib.import_module("walk")


def walked(walk: ModuleType, folder: Path, text: str) -> list[str]:
    page = folder / "page.md"
    page.write_text(text)
    shell = walk.Shell(folder)
    try:
        return walk.walk(page, shell, folder)  # type: ignore[no-any-return]
    finally:
        shell.bash.stdin.close()
        shell.bash.wait(10)
        shell.bash.stdout.close()


def test_a_page_is_files_and_commands_with_what_they_print(
    walk: ModuleType, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    saved, *typed = walk.steps(page)
    assert (saved.kind, saved.name, saved.printed) == ("file", "greet.py", None)
    assert [(step.text, step.printed) for step in typed] == [
        ("name=you", None),
        ("python greet.py $name", "hello you\n"),
        ("python greet.py | tr a-z A-Z", None),
    ]


def test_a_page_that_prints_what_it_shows_is_right(walk: ModuleType, tmp_path: Path) -> None:
    assert walked(walk, tmp_path, PAGE) == []


@pytest.mark.parametrize(
    ("now", "then", "wrong"),
    [
        ("hello you\n", "hello they\n", "but the page shows\nhello they"),
        ("$ name=you", "$ false", "false: exit code 1"),
        ("$ name=you", "$ name=us", "printed\nhello us"),
    ],
)
def test_what_differs_is_reported(
    walk: ModuleType, tmp_path: Path, now: str, then: str, wrong: str
) -> None:
    found = walked(walk, tmp_path, PAGE.replace(now, then))
    assert any(wrong in one for one in found), found
