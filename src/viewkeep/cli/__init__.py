"""The command line: `viewkeep COMMAND [URL] ...`.

Law: an error is one clear line on stderr and exit code 1, wrong usage is exit code 2, and nothing
but data goes to stdout with `--json`. `docs/cli.md` describes every command; a test compares.
"""

from __future__ import annotations

# Commands register as their modules are imported; `--help` lists them in this order. They import
# what reads and writes data when they are called, and `run` starts Spark's JVM before that.
# isort: off
from viewkeep.cli import write, apply, archive, run, serve, users, read, top, profile, verify
from viewkeep.cli import repair, hbase, demo

# isort: on
from viewkeep.cli.app import app

__all__ = [
    "app",
    "apply",
    "archive",
    "demo",
    "hbase",
    "main",
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


def main() -> None:
    """The console script."""
    app()
