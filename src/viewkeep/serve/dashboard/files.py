"""The page's own files: read once, served from memory, and no others.

Law: what is asked for is looked up in a table that was made at the start; no part of a request ever
becomes a path. The page may load nothing from elsewhere, and nobody may frame it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

POLICY = (
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # ask, and be told that nothing has changed
}
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
PAGE, VIEW, DOCS = "index.html", "view.html", "docs.html"  # at /, /views/NAME and /docs


@dataclass(frozen=True)
class File:
    """One file of the page."""

    body: bytes
    type: str
    tag: str  # changes with the body


def web_files() -> dict[str, File]:
    """The files of the page by their names."""
    found: dict[str, File] = {}
    for entry in sorted(resources.files("viewkeep.serve").joinpath("web").iterdir(), key=str):
        kind = _TYPES.get("." + entry.name.rpartition(".")[2])
        if kind is not None:
            body = entry.read_bytes()
            found[entry.name] = File(body, kind, f'"{hashlib.blake2b(body).hexdigest()[:16]}"')
    return found
