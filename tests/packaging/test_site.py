"""The site builds without a warning, loads nothing from the network, has every public name."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import anabranch
from anabranch.offered import Offered, offered

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
# What a browser fetches by itself; a link that a reader follows may lead anywhere.
LOADED = re.compile(
    r"<(?:script|img|iframe|source)[^>]*?\bsrc=[\"']?([^\"'\s>]+)"
    r"|<link\b(?=[^>]*rel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*?href=[\"']?([^\"'\s>]+)"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # A proxy that refuses: whatever reaches for the network fails.
    offline = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-d", str(folder)],
        cwd=ROOT,
        env={
            **os.environ,
            **offline,
            "PYTHONPATH": str(ROOT / "src"),
            "NO_MKDOCS_2_WARNING": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        loaded = ["".join(found) for found in LOADED.findall(page.read_text())]
        assert loaded, page
        assert [one for one in loaded if re.match(r"(https?:)?//", one)] == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\([\"']?(https?:)?//|@import", sheet.read_text()), sheet


MODULES = [n for n in anabranch.__all__ if isinstance(getattr(anabranch, n), ModuleType)]


@pytest.mark.parametrize("module", ["", *(f".{name}" for name in MODULES)])
def test_every_public_name_is_in_the_reference(site: Path, module: str) -> None:
    page = (site / "reference" / f"{module[1:] or 'anabranch'}.html").read_text()
    inside = import_module(f"anabranch{module}")
    names = getattr(inside, "__all__", ["AnabranchError", "UsageError"])
    shown = [name for name in names if not isinstance(getattr(inside, name), ModuleType)]
    assert shown
    assert [name for name in shown if f"ab{module}.{name}" not in page] == []


def test_members_are_in_the_reference_if_they_are_for_users(site: Path) -> None:
    page = (site / "reference" / "anabranch.html").read_text()
    public = [getattr(anabranch, name) for name in anabranch.__all__]
    classes = [one for one in public if isinstance(one, type) and issubclass(one, Offered)]
    assert len(classes) == 6
    for thing in classes:
        place = f"{thing.__module__}.{thing.__qualname__}"
        shown = set(re.findall(rf'id="{re.escape(place)}\.(\w+)"', page))
        assert shown == set(offered(thing)), thing


def test_links_out_of_docs_lead_to_copies(site: Path) -> None:
    for name in ("benchmarks/results/spark_native.json", "examples/first_merge.py"):
        assert (site / "files" / name).read_bytes() == (ROOT / name).read_bytes()
