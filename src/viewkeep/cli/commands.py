"""All commands, registered in the order in which `viewkeep --help` lists them."""

from __future__ import annotations

# isort: off
from viewkeep.cli import write, apply, archive, run, serve, users, read, top, profile, verify
from viewkeep.cli import repair, compact, memory, hbase, demo, doctor

# isort: on
from viewkeep.cli.app import app

__all__ = [
    "app",
    "apply",
    "archive",
    "compact",
    "demo",
    "doctor",
    "hbase",
    "memory",
    "profile",
    "read",
    "repair",
    "run",
    "serve",
    "top",
    "users",
    "verify",
    "write",
]
