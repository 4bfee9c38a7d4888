"""Build and test what region servers run for viewkeep: the jar of `stores/hbase/java`.

    python scripts/hbase/endpoint.py build [JAR] | test

`make hbase-jar` calls it. It compiles against the jars that `cluster.py` gets, with javac alone.
Law: the same sources and the same javac give the same bytes; the manifest names the sources by
their digest, so that one can tell which jar a server runs.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src/viewkeep/stores/hbase/java"
TESTS = ROOT / "tests/stores/hbase/java"
BENCHMARKS = ROOT / "benchmarks/shared/java"
JAR = ROOT / "src/viewkeep/stores/hbase/viewkeep-hbase.jar"
_DATE = (1980, 1, 1, 0, 0, 0)


class BuildError(Exception):
    """Why the jar cannot be built, in a sentence for people."""


def build(jars: Path, target: Path = JAR) -> Path:
    """Make the jar, unless it is there and of these sources."""
    version = digest()
    if version_of(target) == version:
        return target
    with tempfile.TemporaryDirectory() as folder:
        classes = _compile(sorted(SOURCES.rglob("*.java")), [jars / "*"], Path(folder))
        draft = Path(folder) / "jar"
        manifest = (
            "Manifest-Version: 1.0\r\n"
            f"Implementation-Title: viewkeep-hbase\r\nImplementation-Version: {version}\r\n\r\n"
        )
        files = {"META-INF/MANIFEST.MF": manifest.encode()}
        for file in sorted(classes.rglob("*.class")):
            files[file.relative_to(classes).as_posix()] = file.read_bytes()
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as jar:
            for name, data in files.items():
                jar.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Over a name that another process may read: whole or not at all.
        near = target.with_suffix(f".{os.getpid()}")
        shutil.copy(draft, near)
        near.replace(target)
    return target


def build_tests(jars: Path, folder: Path) -> Path:
    """Compile what tests and benchmarks run, anew, and what they test; where the classes are."""
    shutil.rmtree(folder, ignore_errors=True)
    roots = (SOURCES, TESTS, BENCHMARKS)
    files = sorted(file for root in roots for file in root.rglob("*.java"))
    return _compile(files, [jars / "*"], folder)


def test(jars: Path) -> None:
    """Run the tests of what needs no server."""
    with tempfile.TemporaryDirectory() as folder:
        classes = build_tests(jars, Path(folder) / "tests")
        for file in sorted(TESTS.rglob("*Test.java")):
            name = ".".join(file.relative_to(TESTS).with_suffix("").parts)
            words = ["java", "-cp", _path([classes, jars / "*"]), name, str(TESTS.parent)]
            _run(words, f"{name} failed")


def digest() -> str:
    """What the sources are, in 16 digits."""
    known = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*.java")):
        known.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return known.hexdigest()[:16]


def version_of(jar: Path) -> str | None:
    """Of which sources a jar was made; None if there is none."""
    try:
        with zipfile.ZipFile(jar) as file:
            manifest = file.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    return manifest.partition("Implementation-Version: ")[2].partition("\r\n")[0] or None


def jars() -> Path:
    """Where `cluster.py` keeps HBase's jars."""
    home = os.environ.get("VIEWKEEP_HBASE") or Path.home() / ".cache/viewkeep/hbase"
    folder = Path(home).absolute() / "jars"
    if not folder.is_dir():
        raise BuildError(f"there are no jars of HBase in {folder}; `make hbase-up` gets them")
    return folder


def _compile(files: Sequence[Path], path: Sequence[Path], folder: Path) -> Path:
    if shutil.which("javac") is None:
        raise BuildError("javac is missing; install a JDK of Java 17 or later")
    classes = folder / "classes"
    classes.mkdir(parents=True)
    # Region servers may run Java 8.
    words = ["javac", "-nowarn", "--release", "8", "-d", str(classes), "-cp", _path(path)]
    _run([*words, *map(str, files)], "javac failed")
    return classes


def _path(parts: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, parts))


def _run(words: Sequence[str], failure: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise BuildError(f"{failure}:\n{done.stdout}{done.stderr}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="The jar for HBase's region servers.")
    parser.add_argument("command", choices=["build", "test"])
    parser.add_argument("jar", nargs="?", type=Path, default=JAR)
    given = parser.parse_args(arguments)
    try:
        if given.command == "test":
            test(jars())
        else:
            print(f"{build(jars(), given.jar)} (sources {digest()})")
    except BuildError as error:
        print(f"hbase: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
