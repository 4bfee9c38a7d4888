"""The package as others get it: a wheel, installed into an environment that has only that."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.test_docs import program

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "viewkeep"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ]", text)[0].replace("_", "-") for text in requirements}


def test_what_is_imported_is_required() -> None:
    """A package that a dependency happens to bring may be gone with its next version."""
    extras: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
    known = packages_distributions()
    optional = {
        "pytest": {"testing/plugin.py"},  # pytest itself loads it
        **{name: {"stores/hbase"} for name in names(extras["hbase"])},
    }
    # What comes with a package that is required, and is a part of its own interface.
    parts = {"py4j": "pyspark", "starlette": "fastapi", "pydantic": "fastapi", "click": "typer"}
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text())):
            found: list[str] = []
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found = [node.module or ""]
            for module in found:
                top = module.partition(".")[0]
                if top in sys.stdlib_module_names or top in ("viewkeep", "pyspark_viewkeep"):
                    continue
                homes = {name.lower().replace("_", "-") for name in known.get(top, [top])}
                homes |= {parts[name] for name in homes & set(parts)}
                wanted = names(PROJECT["dependencies"])
                wanted |= {
                    name
                    for name, places in optional.items()
                    if any(str(where).startswith(place) for place in places)
                }
                assert homes & wanted, f"{where} imports {module}, which pyproject.toml lacks"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel; what it requires is this environment's."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True, symlinks=True)
    (wheel,) = built.glob("*.whl")
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--disable-pip-version-check", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def run(environment: Path, folder: Path, *command: str) -> str:
    """What a program of the environment prints, in a folder that has nothing of a checkout."""
    left_out = ("PYTHONPATH", "PYSPARK_PYTHON", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [str(environment / command[0]), *command[1:]],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.package
def test_files(built: Path) -> None:
    """All that programs read at run time, type information, and nothing that is not ours."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = set(archive.namelist())
    here = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    assert here <= files
    assert "viewkeep/py.typed" in files
    tops = {name.partition("/")[0].partition("-")[0] for name in files}
    assert tops == {"viewkeep", "pyspark_viewkeep"}
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/viewkeep/py.typed"} <= packed
    assert not {name for name in packed if name.startswith((".venv", "build", "dist"))}


@pytest.mark.package
def test_a_view_from_the_shell(environment: Path, tmp_path: Path) -> None:
    where = run(environment, tmp_path, "python", "-c", "import viewkeep; print(viewkeep.__file__)")
    assert Path(where.strip()).is_relative_to(environment.parent)
    statements = (
        "CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT);"
        "CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story;"
        "INSERT INTO votes VALUES (1, 7), (2, 7)"
    )
    run(environment, tmp_path, "viewkeep", "sql", "news.vk", statements, "--create")
    run(environment, tmp_path, "viewkeep", "run", "news.vk", "--once", "--master", "local[1]")
    got = run(environment, tmp_path, "viewkeep", "get", "news.vk", "scores", "7", "--json")
    assert got.strip() == '{"story": 7, "votes": 2}'


@pytest.mark.package
def test_the_demo(environment: Path, tmp_path: Path) -> None:
    options = ("--seconds", "2", "--rate", "200", "--plain", "--no-browse")
    output = run(environment, tmp_path, "viewkeep", "demo", *options)
    assert "Every view is right." in output


@pytest.mark.package
def test_the_tutorial(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "tutorial.py").write_text(program(ROOT / "docs" / "tutorial.md"))
    assert "customers" in run(environment, tmp_path, "python", "tutorial.py")
