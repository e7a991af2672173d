"""What the machine gives: container limits, the cache folder, the driver's heap."""

from pathlib import Path

import pytest

from anabranch.spark.session import host


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ANABRANCH_CACHE_DIR": "/x/y", "XDG_CACHE_HOME": "/z"}, "/x/y"),
        ({"XDG_CACHE_HOME": "/z"}, "/z/anabranch"),
        ({"HOME": "/home/me"}, "/home/me/.cache/anabranch"),
    ],
)
def test_the_cache_folder_is_where_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("ANABRANCH_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert host.cache_dir() == Path(expected)


@pytest.mark.parametrize(("limit", "counts"), [("1073741824\n", True), ("max\n", False)])
def test_a_container_limit_counts_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, counts: bool
) -> None:
    (tmp_path / "memory.max").write_text(limit)
    places = (tmp_path / "memory.max", tmp_path / "absent")
    monkeypatch.setattr(host, "_MEMORY_LIMITS", places)
    assert (host.memory_bytes() == host.GIB) is counts


@pytest.mark.parametrize(
    ("gibibytes", "heap"), [(1, "1024m"), (6, "2048m"), (9, "3072m"), (64, "4096m")]
)
def test_the_driver_gets_a_third_within_bounds(
    monkeypatch: pytest.MonkeyPatch, gibibytes: int, heap: str
) -> None:
    monkeypatch.setattr(host, "memory_bytes", lambda: gibibytes * host.GIB)
    assert host.driver_memory() == heap


@pytest.mark.parametrize(
    ("heap", "region"),
    [("64g", 32), ("4096m", 16), ("4G", 16), ("3072mb", 8), ("1024", 4)],
)
def test_a_heap_has_at_least_256_regions(heap: str, region: int) -> None:
    assert host.heap_options(heap) == f"-XX:G1HeapRegionSize={region}m"


@pytest.mark.parametrize(("heap", "first"), [("1023m", 96), ("512m", 96), ("64m", 64)])
def test_a_small_heap_has_the_serial_collector(heap: str, first: int) -> None:
    assert host.heap_options(heap) == f"-XX:+UseSerialGC -Xms{first}m"


@pytest.mark.parametrize("heap", ["512m", "4g"])
def test_the_user_chooses_the_collector(heap: str) -> None:
    assert host.heap_options(heap, "-Dx=y -XX:+UseParallelGC") == ""
    assert host.heap_options(heap, "-XX:+UseStringDeduplication") == host.heap_options(heap)


@pytest.mark.parametrize("heap", ["lots", "", "-1g", "1.5g"])
def test_a_heap_that_is_no_size_has_no_options(heap: str) -> None:
    assert host.heap_options(heap) == ""
