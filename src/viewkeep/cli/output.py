"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from viewkeep.access.results import Result

console = Console()
errors = Console(stderr=True)


def print_result(result: Result, as_json: bool) -> None:
    """A statement's rows, or what it did."""
    if as_json:
        if result.columns:
            print_json(result.rows())
        else:
            print_json({"message": result.message, "affected": result.affected})
    elif result.columns:
        console.print(result.table(most=None))
        console.print(f"[dim]{len(result):,} {'row' if len(result) == 1 else 'rows'}[/dim]")
    else:
        console.print(result.message, markup=False, highlight=False)


def print_json(value: object) -> None:
    """One JSON document on one line."""
    print(json.dumps(value, default=_plain, ensure_ascii=False))


def _plain(value: object) -> Any:
    """DECIMAL as text so that no digit is lost, BINARY as hex, dates and instants as ISO 8601."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def size_text(count: int | None) -> str:
    """A number of bytes in words."""
    if count is None:
        return "an unknown size"
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
