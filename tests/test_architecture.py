"""The shape of the code: imports point downward, public names are pinned, files stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import viewkeep
from viewkeep.plan import nodes

SOURCE = Path(viewkeep.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# What each part may import from viewkeep besides itself. Vocabulary first, applications last.
VOCABULARY = {"deferred", "errors", "types", "expr", "codec", "delta", "cells", "interrupts"}
ALLOWED: dict[str, set[str]] = {
    "deferred": set(),
    "errors": set(),
    "types": {"deferred"},
    "claims": {"errors"},
    "interrupts": set(),
    "cells": set(),
    "expr": {"types"},
    "codec": {"deferred", "errors", "types"},
    "delta": VOCABULARY,
    "stores": {"deferred", "errors", "types", "codec", "cells", "claims"},
    "ops": VOCABULARY,
    "plan": VOCABULARY | {"ops"},
    "sql": VOCABULARY | {"ops", "plan"},
    "engine": VOCABULARY | {"stores", "ops", "plan"},
    "catalog": VOCABULARY | {"stores", "ops", "plan", "sql", "engine"},
}
ALLOWED["access"] = ALLOWED["catalog"] | {"catalog"}
ALLOWED["status"] = ALLOWED["access"] | {"access"}
ALLOWED["spark"] = ALLOWED["access"] | {"access"}
ALLOWED["inprocess"] = {"errors", "stores", "engine"}
ALLOWED["database"] = ALLOWED["access"] | {"access", "status", "spark", "inprocess"}
_APPLICATION = ALLOWED["database"] | {"database", ""}
ALLOWED["serve"] = _APPLICATION | {"__version__", "claims"}
ALLOWED["testing"] = _APPLICATION
ALLOWED["demo"] = _APPLICATION | {"serve"}
ALLOWED["cli"] = _APPLICATION | {"demo", "serve", "__version__"}
ALLOWED[""] = _APPLICATION

# Outside modules that a part must not know.
SPARK = {"pyspark", "py4j"}
PURE = SPARK | {"lmdb", "time", "logging", "typer", "rich", "random", "socket", "threading"}
FORBIDDEN = {
    "ops": PURE,
    "plan": PURE,
    "sql": PURE,
    "codec": PURE,
    "engine": SPARK | {"lmdb", "logging", "typer", "rich"},
    "stores": SPARK | {"typer", "rich"},
    "catalog": SPARK,
    "access": SPARK,
}

PUBLIC = [
    "ANY",
    "At",
    "Change",
    "Database",
    "Event",
    "Feed",
    "Loaded",
    "Pipeline",
    "Result",
    "Session",
    "Snapshot",
    "Status",
    "Verdict",
    "ViewkeepError",
    "errors",
    "make",
    "open",
    "restore",
]


def part_of(path: Path) -> str:
    """The package or module of viewkeep that a file belongs to; empty for `__init__`."""
    first = path.relative_to(SOURCE).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it; type-checking imports do not run."""
    tree = ast.parse(path.read_text())
    skipped = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            module = node.module or ""
            if module == "viewkeep":
                yield from (f"viewkeep.{alias.name}" for alias in node.names)
            else:
                yield module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward(path: Path) -> None:
    part = part_of(path)
    assert part in ALLOWED, f"{part} has no place in the table of imports"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "viewkeep":
            target = rest.partition(".")[0]
            assert target in ALLOWED[part] | {part}, f"{part} must not import viewkeep.{target}"
        else:
            assert top not in FORBIDDEN.get(part, set()), f"{part} must not import {top}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_are_small_and_say_what_they_are(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 600
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "a module opens with what it is"


def test_a_folder_says_what_it_holds() -> None:
    """And the law that its files keep."""
    for folder in {path.parent for path in MODULES}:
        tree = ast.parse((folder / "__init__.py").read_text())
        text = ast.get_docstring(tree) or ""
        where = folder.relative_to(SOURCE)
        assert len(text.split()) > 5, f"{where}/__init__.py says what the folder holds"
        assert "Law" in text or folder == SOURCE, f"{where}/__init__.py states the folder's law"


def test_a_public_class_has_a_name_of_its_own() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    shared = {name: where for name, where in homes.items() if len(where) > 1}
    assert not shared, f"classes of different modules share a name: {shared}"


def test_public_namespace() -> None:
    assert sorted(viewkeep.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(viewkeep, name) is not None


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        # A program pays for what it uses, and pytest, which loads the plugin, for nothing.
        ("viewkeep", ("numpy", "polars", "pyarrow", "pyspark", "typer", "rich", "lmdb")),
        ("viewkeep.testing.plugin", ("numpy", "polars", "pyarrow", "pyspark", "lmdb")),
        # A Spark worker must not bring the command line with it.
        ("viewkeep.engine.level", ("typer", "rich", "pyspark", "pandas")),
        # `run` starts the JVM before these, and `--help` needs none of them.
        ("viewkeep.cli", ("polars", "pyarrow", "numpy", "sqlglot", "pyspark", "lmdb")),
        # What `run` imports before the JVM starts.
        ("viewkeep.spark.gateway", ("polars", "pyarrow", "numpy", "sqlglot", "lmdb")),
    ],
)
def test_import_is_light(module: str, heavy: tuple[str, ...]) -> None:
    import subprocess
    import sys

    code = f"import sys, {module}; print(sorted({set(heavy)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


LIBRARIES = ("numpy", "polars", "pyarrow")


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (["get", "t", "1"], (*LIBRARIES, "sqlglot", "viewkeep.engine.operators")),
        (["status"], (*LIBRARIES, "sqlglot", "viewkeep.engine.operators")),
        (["sql", "SELECT * FROM t WHERE id = 1"], LIBRARIES),
        (["sql", "SELECT COUNT(*) AS n FROM t"], ("pyarrow",)),
    ],
    ids=lambda value: " ".join(value[:2]),
)
def test_quick_commands_load_little(
    command: list[str], unused: tuple[str, ...], tmp_path: Path
) -> None:
    """Reading one row must not wait for libraries that it does not need."""
    import subprocess
    import sys

    url = str(tmp_path / "a.vk")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, n DECIMAL(10,2)); INSERT INTO t VALUES (1,2)"
        )
    wanted = [*unused, "duckdb", "pyspark", "fastapi", "pandas"]
    code = (
        f"import atexit, sys; sys.argv = {['viewkeep', command[0], url, *command[1:]]!r}\n"
        "from viewkeep.cli import main\n"
        f"atexit.register(lambda: print(sorted(set({wanted!r}) & set(sys.modules)), "
        "file=sys.stderr))\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout


def _is_node(name: ast.expr) -> bool:
    """Whether an expression names a class of plan nodes."""
    if isinstance(name, ast.Attribute):
        return isinstance(name.value, ast.Name) and name.value.id == "nodes" and name.attr in NODES
    return isinstance(name, ast.Name) and name.id in NODES


NODES = {
    name
    for name, value in vars(nodes).items()
    if isinstance(value, type) and issubclass(value, nodes.Node) and is_dataclass(value)
}


def kinds_told_apart(function: ast.AST) -> set[str]:
    """The kinds of plan nodes that a function asks for, by isinstance, match, or their type."""
    found: set[str] = set()
    for part in ast.walk(function):
        asked: list[ast.expr] = []
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
            asked = part.args[1:] if part.func.id == "isinstance" else []
        elif isinstance(part, ast.MatchClass):
            asked = [part.cls]
        elif isinstance(part, ast.Compare) and isinstance(part.left, ast.Call):
            of_type = isinstance(part.left.func, ast.Name) and part.left.func.id == "type"
            asked = part.comparators if of_type else []
        for one in asked:
            found |= {ast.unparse(name) for name in ast.walk(one) if _is_node(name)}  # type: ignore[arg-type]
    return found


def test_nobody_but_nodes_tells_nodes_apart() -> None:
    """A function that asks for three kinds of nodes wants a method that all nodes have."""
    ladders = []
    for path in MODULES:
        if path.parent == SOURCE / "plan" / "nodes":
            continue
        for part in ast.walk(ast.parse(path.read_text())):
            if isinstance(part, ast.FunctionDef) and len(kinds := kinds_told_apart(part)) > 2:
                ladders.append(f"{path.relative_to(SOURCE)} {part.name}: {sorted(kinds)}")
    assert not ladders, "\n".join(ladders)


def test_a_ladder_would_be_seen() -> None:
    ladder = """
def f(node):
    if isinstance(node, Filter | nodes.Project):
        return 1
    match node:
        case Join(kind="inner"):
            return 2
"""
    assert len(kinds_told_apart(ast.parse(ladder))) == 3
    assert not kinds_told_apart(ast.parse("isinstance(tree, exp.Window)"))


def test_the_dashboard_draws_every_operator() -> None:
    signs = (SOURCE / "serve" / "web" / "kinds.js").read_text()
    readers = (SOURCE / "serve" / "web" / "placing.js").read_text()
    for name in NODES:
        node = vars(nodes)[name]
        if issubclass(node, nodes.OperatorNode):
            assert f"  {name.lower().replace('arrange', 'arrangement')}: " in signs
        if issubclass(node, nodes.ReaderNode):
            assert f'"{name.lower()}"' in readers
