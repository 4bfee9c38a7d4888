"""The documents are true: their programs run, and what they should list, they list."""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
import subprocess
import sys
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import viewkeep
from viewkeep import errors
from viewkeep.demo.site import TABLES, VIEWS
from viewkeep.engine.local import catch_up
from viewkeep.ops.aggregates.registry import AGGREGATES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "tutorial.md"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def program(page: Path) -> str:
    """The Python blocks of a page, as one program with the page's line numbers."""
    lines, inside = [], False
    for line in page.read_text().splitlines():
        if line.strip() in ("```python", "```"):
            inside = line.strip() == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines)


def is_value(text: str) -> bool:
    """Whether a comment is a Python value, and not words."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return all(node.id == "Decimal" for node in ast.walk(tree) if isinstance(node, ast.Name))


def run(code: str, name: str) -> None:
    """Run a program; an expression followed by `# value` must have that value."""
    comments = {
        token.start[0]: token.string[1:].strip()
        for token in tokenize.generate_tokens(StringIO(code).readline)
        if token.type == tokenize.COMMENT
    }
    scope: dict[str, object] = {"__name__": "__main__"}

    class Checked(ast.NodeTransformer):
        def visit_Expr(self, node: ast.Expr) -> ast.AST:
            expected = comments.get(node.end_lineno or 0)
            if expected is None or isinstance(node.value, ast.Constant):
                return node
            if not is_value(expected):
                return node
            check = ast.parse(f"_check({node.lineno}, None, {expected!r})").body[0]
            assert isinstance(check, ast.Expr)
            assert isinstance(check.value, ast.Call)
            check.value.args[1] = node.value
            return ast.fix_missing_locations(ast.copy_location(check, node))

    def check(line: int, value: object, expected: str) -> None:
        wanted = eval(expected, {"Decimal": Decimal})
        assert value == wanted, f"{name}, line {line}: {value!r}, not {expected}"

    scope["_check"] = check
    tree = Checked().visit(ast.parse(code, name))
    exec(compile(tree, name, "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_run(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(program(page), page.name)


@pytest.mark.parametrize("name", ["reading.md", "partial.md"])
def test_pages_beside_a_pipeline_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that read beside a pipeline; here its epochs run in a thread."""
    from viewkeep.engine.epochs import Epochs
    from viewkeep.engine.local import advance

    monkeypatch.chdir(tmp_path)
    done = threading.Event()
    with viewkeep.open("news.vk", durability="relaxed") as db:
        lease = Epochs(db.store).acquire()

        def epochs() -> None:
            while not done.is_set():
                if advance(db.store, lease.term) is None:
                    done.wait(0.005)

        thread = threading.Thread(target=epochs)
        thread.start()
        try:
            page = DOCS / name
            run(program(page), page.name)
        finally:
            done.set()
            thread.join()


def test_testing_page_runs() -> None:
    page = DOCS / "testing.md"
    run(program(page), page.name)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run(
    example: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(example.read_text(), example.name)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(
    notebook: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each cell, in order; where a cell shows a value, it has that one here too."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    cells = json.loads(notebook.read_text())["cells"]
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, notebook.name, "exec"), scope)
        if last is None:
            continue
        assert isinstance(last, ast.Expr)
        value = eval(compile(ast.Expression(last.value), notebook.name, "eval"), scope)
        shown = ["".join(output["data"]["text/plain"]) for output in cell["outputs"]]
        assert shown == ([] if value is None else [repr(value)]), f"cell {number}"


def test_the_web_application_passes_its_own_tests(tmp_path: Path) -> None:
    for file in (ROOT / "examples" / "web").glob("*.py"):
        shutil.copy(file, tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_spark_job_reads_views_at_one_epoch(spark: SparkSession, tmp_path: Path) -> None:
    url, folder = str(tmp_path / "news.vk"), str(tmp_path / "report")
    with viewkeep.open(url, durability="relaxed") as db:
        db.sql(TABLES + VIEWS)
        db.put("stories", [{"id": n, "author": "ann" if n < 3 else "bob"} for n in range(4)])
        db.put("votes", [{"story": n % 4, "voter": n, "stars": 3} for n in range(8)])
        catch_up(db.store)
    job = runpy.run_path(str(ROOT / "examples" / "job" / "report.py"))
    job["report"](spark, url, folder)
    rows = [row.asDict() for row in spark.read.parquet(folder).orderBy("author").collect()]
    assert [(row["author"], row["votes"], row["share"]) for row in rows] == [
        ("ann", 6, 0.75),
        ("bob", 2, 0.25),
    ]


def links(page: Path) -> Iterator[str]:
    """The relative links of a page, with their anchors."""
    for target in re.findall(r"\]\(([^)\s]+)", page.read_text()):
        if "://" not in target:
            yield target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and our site make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    seen: Counter[str] = Counter()
    for title in re.findall(r"^#{1,6} +(.*)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")
        name = re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")
        seen[name] += 1
    repeated = {f"{name}-{n}" for name, count in seen.items() for n in range(1, count)}
    return set(seen) | repeated


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *DOCS.rglob("*.md")], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        to = page.parent / path if path else page
        assert to.exists(), f"{page.name} links to {target}"
        if anchor and to.suffix == ".md":
            assert anchor in anchors(to), f"{page.name} links to {target}, a heading that is not"


def test_index_lists_every_page() -> None:
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= set(links(DOCS / "README.md"))


def test_the_site_lists_every_page() -> None:
    """Each stands once in its navigation, which is grouped by what a reader wants."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

    def listed(part: object) -> Iterator[str]:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict):
            for inner in part.values():
                yield from listed(inner)
        elif isinstance(part, list):
            for inner in part:
                yield from listed(inner)

    found = Counter(listed(nav))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"}
    assert not pages - set(found)
    assert set(found.values()) == {1}


def test_exports_are_documented() -> None:
    text = (DOCS / "python.md").read_text()
    for name in viewkeep.__all__:
        assert f"`{name}`" in text or f"viewkeep.{name}" in text, name


def test_methods_are_documented() -> None:
    text = (DOCS / "python.md").read_text()
    for kind, variable in ((viewkeep.Database, "db"), (viewkeep.Pipeline, "pipeline")):
        for name in vars(kind):
            if not name.startswith("_") and name not in INTERNAL:
                assert f"{variable}.{name}" in text, f"{kind.__name__}.{name}"
    for name in vars(viewkeep.Result):
        if not name.startswith("_") and name not in INTERNAL:
            assert f"`{name}" in text, f"Result.{name}"


# For viewkeep's own command line and tests.
INTERNAL = {"table", "run_forever"}


def test_errors_are_drawn_in_their_tree() -> None:
    drawn = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.ViewkeepError):
            assert name in drawn, name


def test_dependencies_are_documented() -> None:
    text = (DOCS / "dependencies.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    block = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    names = re.findall(r'^    "([a-z0-9-]+)', block, re.M)
    assert names
    for name in names:
        assert f"| {name} |" in text, name


def test_every_dependency_is_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    block = project[project.index("dependencies = [") : project.index("[project.scripts]")]
    for name in re.findall(r'^    "([a-z0-9-]+)', block, re.M):
        assert re.search(rf"^{name}==", pins, re.M | re.I), name


def test_environment_variables_are_documented() -> None:
    text = (DOCS / "operations.md").read_text()
    source = ROOT / "src" / "viewkeep"
    found = {
        name
        for path in source.rglob("*.py")
        for name in re.findall(r'"(VIEWKEEP_[A-Z_]+)"', path.read_text())
    }
    assert found
    for name in found:
        assert f"`{name}`" in text, name


def test_aggregates_are_documented() -> None:
    """Each name that SQL has for an aggregate stands in the section on them."""
    text = (DOCS / "sql.md").read_text().partition("## Aggregates")[2].partition("\n## ")[0]
    words = set(re.findall(r"[A-Z_]+", text))
    known = {spelling for function in AGGREGATES.values() for spelling in function.spellings}
    assert not {spelling.upper() for spelling in known} - words


def test_the_tour_is_complete() -> None:
    """It links to every folder of the package, and to every file of the engine itself."""
    package = ROOT / "src" / "viewkeep"
    tour = (DOCS / "tour.md").read_text()
    wanted = [path.parent for path in package.rglob("__init__.py") if path.parent != package]
    wanted += [path for path in package.glob("*.py") if path.stem != "__init__"]
    wanted += [path for path in (package / "engine").glob("*.py") if path.stem != "__init__"]
    missing = [str(path.relative_to(package)) for path in wanted]
    assert not [name for name in missing if f"src/viewkeep/{name}" not in tour]
