"""Serving a database to others: HTTP, the MySQL protocol, and the dashboard.

Law: no request takes more time, memory or threads than the settings allow, and none delays
another without bound.

`viewkeep.serve.Server` and `viewkeep.serve.Settings` are what programs use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from viewkeep.serve.server import Server
    from viewkeep.serve.settings import Settings

__all__ = ["Server", "Settings"]


def __getattr__(name: str) -> object:
    """Import on first use: a server brings much that its settings do not need."""
    if name == "Server":
        from viewkeep.serve.server import Server

        return Server
    if name == "Settings":
        from viewkeep.serve.settings import Settings

        return Settings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
