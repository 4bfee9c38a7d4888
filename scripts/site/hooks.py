"""What `make docs` adds to the Markdown of docs/: pages from elsewhere in the repository.

README, CHANGELOG and CONTRIBUTING become pages, and so does every source file or folder that a page
links to. The API reference is made of the docstrings of the public names. Links are rewritten to
match; mkdocs then checks all of them, with their anchors.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "src"))

# Pages that stand elsewhere in the repository, and their names in the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples/README.md": "examples.md",
    "examples/grafana/README.md": "source/examples/grafana.md",
}
# What a reader of the site is led to instead.
INSTEAD = {"docs/README.md": "README.md", "docs/design": "docs/design/README.md"}
ICON = ROOT / "src/viewkeep/serve/web/icon.svg"
LANGUAGES = {".c": "c", ".html": "html", ".json": "json", ".py": "python", ".service": "ini"}
LANGUAGES |= {".yaml": "yaml", ".yml": "yaml", ".ipynb": "json"}
LINK = re.compile(r"(\]\()([^)\s:]+)(\))")
THEIRS = re.compile(r'<script src="https://[^"]*iframe-worker[^"]*"></script>')
FENCE = re.compile(r"^ *(```|~~~)")

_places: dict[str, str] = {}  # a path in the repository, and its place in the site


def on_config(config: Any) -> Any:
    """Anchors as GitHub makes them, so that a link works in both."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def slug(text: str, separator: str = "-") -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: Any) -> Files:
    """All pages: those of docs/, those from elsewhere, and what any of them links to."""
    _places.clear()
    for file in files.documentation_pages():
        _places[f"docs/{file.src_uri}"] = file.src_uri
    _places.update(PAGES)
    for path, place in PAGES.items():
        files.append(File.generated(config, place, content=(ROOT / path).read_text()))
    for path in sorted({target for page in list(_places) for target in _outside(page)}):
        _places[path] = f"source/{path}.md"
        files.append(File.generated(config, _places[path], content=_source_page(path)))
    files.append(File.generated(config, "api.md", content=_api_page()))
    for place in (ICON, HERE / "site.css", HERE / "worker.js"):
        files.append(File.generated(config, place.name, content=place.read_text()))
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """The page with our script for search in files, where the theme loads one from elsewhere."""
    ours = f'<script src="{relpath("worker.js", dirname(page.file.dest_uri) or ".")}"></script>'
    return THEIRS.sub(ours, output)


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """The page with its links rewritten from the repository to the site."""
    place = page.file.src_uri
    path = next((path for path, known in _places.items() if known == place), None)
    if path is None or not path.endswith(".md"):
        return markdown

    def rewritten(match: re.Match[str]) -> str:
        target, _, anchor = match[2].partition("#")
        to = _place_of(_resolved(path, target)) if target else None
        if to is None:
            return match[0]
        link = relpath(to, dirname(place) or ".")
        return f"{match[1]}{link}{'#' + anchor if anchor else ''}{match[3]}"

    return "\n".join(_each_line(markdown, lambda line: LINK.sub(rewritten, line)))


def _each_line(markdown: str, change: Any) -> list[str]:
    """The lines of a page, those outside code blocks changed."""
    lines, inside = [], False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            inside = not inside
        lines.append(line if inside else change(line))
    return lines


def _place_of(path: str) -> str | None:
    """Where something of the repository is in the site; figures are where they are in docs/."""
    if path in _places:
        return _places[path]
    figure = path.startswith("docs/") and (ROOT / path).is_file()
    return path.removeprefix("docs/") if figure else None


def _resolved(page: str, target: str) -> str:
    """A link's target as a path in the repository."""
    path = normpath(f"{dirname(page)}/{target}".lstrip("/"))
    path = INSTEAD.get(path, path)
    index = f"{path}/README.md"
    return index if index in _places else path


def _outside(page: str) -> set[str]:
    """What a page links to that is no page of the site, and no figure."""
    text = "\n".join(_each_line((ROOT / page).read_text(), lambda line: line))
    found = {_resolved(page, target.partition("#")[0]) for _, target, _ in LINK.findall(text)}
    return {
        path
        for path in found
        if path not in _places and not path.startswith("docs/") and (ROOT / path).exists()
    }


def _source_page(path: str) -> str:
    """A page that shows a file, or lists a folder."""
    head = f"---\nsearch:\n  exclude: true\n---\n\n# {Path(path).name}\n\n`{path}`\n\n"
    file = ROOT / path
    if file.is_dir():
        rows = [
            f"| `{part.name}` | {_says(part)} |"
            for part in sorted(file.iterdir())
            if not part.name.startswith(("__pycache__", "."))
        ]
        return (
            head
            + _says(file)
            + "\n\n| file | what it holds |\n|---|---|\n"
            + "\n".join(rows)
            + "\n"
        )
    language = LANGUAGES.get(file.suffix, "text")
    return f"{head}~~~~~~ {language}\n{file.read_text()}\n~~~~~~\n"


def _says(path: Path) -> str:
    """What a module or package says of itself in its first line."""
    file = path / "__init__.py" if path.is_dir() else path
    if file.suffix != ".py" or not file.is_file():
        return ""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return text.partition("\n")[0].replace("|", "\\|")


def _api_page() -> str:
    """The public names, by what they are for."""
    import viewkeep
    from viewkeep import errors

    groups = {
        "Opening": ("open", "make", "restore"),
        "Databases": ("Database", "Session", "Snapshot", "At", "ANY"),
        "Results": ("Result", "Loaded"),
        "Change feeds": ("Feed", "Event", "Change"),
        "The pipeline": ("Pipeline", "Verdict", "Status"),
    }
    named = {name for names in groups.values() for name in names}
    left = set(viewkeep.__all__) - named - {"errors", "ViewkeepError"}
    assert not left, f"scripts/site/hooks.py has no place in the API reference for {sorted(left)}"
    text = ["# API reference", "", "From the docstrings; [the Python API](python.md) is shorter."]
    for title, names in groups.items():
        text += ["", f"## {title}", ""]
        text += [_described(f"{viewkeep._HOMES[name]}.{name}") for name in names]
    text += ["## Testing", "", _described("viewkeep.testing.database"), "## Errors", ""]
    tree = (errors.__doc__ or "").partition("\n\n")[2].strip()
    text += ["Every error is in `viewkeep.errors`.", "", "```text", tree, "```", ""]
    return "\n".join(text)


def _described(name: str) -> str:
    """The block in which mkdocstrings describes a class or function."""
    return f"::: {name}\n    options:\n      heading_level: 3\n"


if __name__ == "__main__":
    os.chdir(ROOT)
    from mkdocs.__main__ import cli

    cli(["build", "--strict", "--quiet"])
