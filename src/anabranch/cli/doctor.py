"""`anabranch doctor`: does this machine have what a run needs, and if not, what to do.

Each line is ok, warn (works, but may disappoint) or fail (will not work), and a line that is
not ok names its remedy. Exit code 1 if any line fails. Nothing is started and nothing leaves
this machine, unless `--spark` asks for a real session, which runs one query on loopback.
"""

import json
import platform
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

import click

from anabranch.cli import settings
from anabranch.errors import AnabranchError
from anabranch.spark.session import host, versions, workers

Status = Literal["ok", "warn", "fail"]

# (package, first version that works, first version that does not)
LIBRARIES: tuple[tuple[str, tuple[int, ...], tuple[int, ...] | None], ...] = (
    ("pyspark", versions.DECLARED, versions.BEYOND),
    ("pandas", (2, 2), (3,)),
    ("pyarrow", (18,), None),
    ("numpy", (2, 0), None),
    ("numba", (0, 68), (0, 69)),
    ("protobuf", (6, 33, 5), (8,)),
)
PYTHONS = ((3, 11), (3, 14))
ENOUGH_MEMORY = 4 * host.GIB
LEAST_MEMORY = 2 * host.GIB
ENOUGH_DISK = 2 * host.GIB


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: what was found, whether it suffices, else the remedy."""

    name: str
    status: Status
    found: str
    remedy: str = ""


@click.command("doctor")
@click.option("--spark", "start_spark", is_flag=True, help="Also start Spark and run a query.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(ctx: click.Context, *, start_spark: bool, as_json: bool) -> None:
    """Check Python, Java, Spark, memory and disk; exit code 1 if something will not work."""
    loaded = settings.load()
    findings = examine(loaded)
    if start_spark:
        findings.append(look_at_spark(loaded))
    healthy = all(finding.status != "fail" for finding in findings)
    if as_json:
        report = {"ok": healthy, "findings": [asdict(finding) for finding in findings]}
        click.echo(json.dumps(report))
    else:
        _print(findings, healthy=healthy, started=start_spark)
    if not healthy:
        ctx.exit(1)


def examine(loaded: settings.Settings) -> list[Finding]:
    """All findings that need no Spark."""
    return [
        look_at_python(sys.version_info[:3]),
        look_at_java(loaded),
        *(look_at_library(*library) for library in LIBRARIES),
        look_at_pictures(),
        look_at_memory(host.memory_bytes()),
        look_at_disk(loaded, shutil.disk_usage),
        _look_at_cores(),
        _look_at_loopback(),
        look_at_workers(),
    ]


def look_at_python(running: tuple[int, ...]) -> Finding:
    """Whether this Python is one that was tested."""
    found = f"{'.'.join(map(str, running))} ({sys.executable}, {platform.platform()})"
    first, beyond = PYTHONS
    if first <= running < beyond:
        return Finding("python", "ok", found)
    return Finding("python", "fail", found, "install Python 3.11, 3.12 or 3.13 and use it")


def look_at_java(loaded: settings.Settings) -> Finding:
    """Whether there is a Java that Spark can use, and whose it is."""
    from anabranch.spark.session.java import java_home

    try:
        java = java_home(cache=loaded.cache_dir)
    except AnabranchError as problem:
        return Finding("java", "fail", "none that is usable", str(problem))
    return Finding("java", "ok", f"{java.version} from {java.origin}: {java.java}")


def look_at_library(
    name: str, first: tuple[int, ...], beyond: tuple[int, ...] | None
) -> Finding:
    """Whether a library is there, in a version that works."""
    wanted = f"{name}>={_dotted(first)}" + (f",<{_dotted(beyond)}" if beyond else "")
    remedy = f"pip install '{wanted}'"
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "fail", "not installed", remedy)
    numbers = tuple(int(part) for part in found.split(".")[:3] if part.isdecimal())
    good = numbers >= first and (beyond is None or numbers < beyond)
    return Finding(name, "ok", found) if good else Finding(name, "fail", found, remedy)


def look_at_pictures() -> Finding:
    """Whether PNG pictures can be drawn; nothing else needs that."""
    try:
        return Finding("pictures", "ok", f"matplotlib {version('matplotlib')}")
    except PackageNotFoundError:
        found = "SVG and text; for PNG also: pip install matplotlib"
        return Finding("pictures", "ok", found)


def look_at_memory(total: int) -> Finding:
    """Whether the memory carries a driver, its Python workers and their state."""
    found = f"{total / host.GIB:.1f} GiB, of which {host.COMMAND_HEAP} for the driver"
    remedy = "give this machine or container more memory; small streams may still run"
    if total >= ENOUGH_MEMORY:
        return Finding("memory", "ok", found)
    return Finding("memory", "warn" if total >= LEAST_MEMORY else "fail", found, remedy)


def look_at_disk(
    loaded: settings.Settings, usage: Callable[[str], "shutil._ntuple_diskusage"]
) -> Finding:
    """Whether there is room for checkpoints and Spark's shuffle files."""
    import tempfile

    folder = tempfile.gettempdir()
    free = usage(folder).free
    found = f"{free / host.GIB:.1f} GiB free in {folder}; cache in {loaded.cache_dir}"
    if free >= ENOUGH_DISK:
        return Finding("disk", "ok", found)
    remedy = "free some space, or point TMPDIR at a larger disk; see also: anabranch clean"
    return Finding("disk", "warn", found, remedy)


def _look_at_cores() -> Finding:
    count = host.cores()
    if count > 1:
        return Finding("cores", "ok", str(count))
    return Finding("cores", "warn", str(count), "one core works, slowly; give it two or more")


def _look_at_loopback() -> Finding:
    """Spark and its Python workers talk over loopback sockets."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                return Finding("loopback", "ok", "127.0.0.1 accepts connections")
    except OSError as problem:
        remedy = "allow local connections to 127.0.0.1 (firewall, sandbox, /etc/hosts)"
        return Finding("loopback", "fail", str(problem), remedy)


def look_at_workers() -> Finding:
    """Whether Python workers start preloaded, and how other sessions than ours get that."""
    if not workers.is_switched_on():
        return Finding("workers", "ok", f"not preloaded: {workers.VARIABLE} is 0")
    lines = " ".join(f"--conf {name}={value}" for name, value in workers.settings().items())
    found = f"preloaded in sessions that Anabranch starts; for others: spark-submit {lines}"
    return Finding("workers", "ok", found)


def look_at_spark(loaded: settings.Settings) -> Finding:
    """Start a real session and run a query that goes through a Python worker."""
    try:
        spark = loaded.start_session(app_name="anabranch doctor")
    except AnabranchError as problem:
        return Finding("spark", "fail", "does not start", str(problem))
    try:
        rows = spark.range(1000).mapInArrow(lambda batches: batches, "id long").count()
    except Exception as problem:
        from anabranch.spark.session.start import log_file

        text = f"a query fails: {str(problem).splitlines()[0]}"
        return Finding("spark", "fail", text, f"see Spark's log: {log_file()}")
    finally:
        spark.stop()
    return Finding("spark", "ok", f"{loaded.master} counted {rows} rows through Python")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _print(findings: list[Finding], *, healthy: bool, started: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    colors = {"ok": "green", "warn": "yellow", "fail": "bold red"}
    for finding in findings:
        line = Text(f"{finding.status:4} ", style=colors[finding.status])
        line.append(f"{finding.name:9} {finding.found}", style="default")
        console.print(line, soft_wrap=True)
        if finding.remedy:
            console.print(Text(f"     -> {finding.remedy}"), soft_wrap=True)
    if healthy and not started:
        console.print("All there. `anabranch doctor --spark` also starts Spark.")
