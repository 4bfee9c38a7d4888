"""The command line: `viewkeep COMMAND [URL] ...`.

Law: an error is one clear line on stderr and exit code 1, wrong usage is exit code 2, and nothing
but data goes to stdout with `--json`. `docs/cli.md` describes every command; a test compares.

Commands register with the application as their modules are imported. A command that is called by
its name imports its own module alone; help and completion import all (`viewkeep.cli.commands`).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module

# The module of each command.
MODULES = {
    "apply": "apply",
    "backup": "archive",
    "compact": "compact",
    "demo": "demo",
    "doctor": "doctor",
    "drop": "write",
    "explain": "read",
    "export": "archive",
    "get": "read",
    "hbase": "hbase",
    "init": "write",
    "load": "write",
    "memory": "memory",
    "profile": "profile",
    "repair": "repair",
    "restore": "archive",
    "run": "run",
    "scan": "read",
    "serve": "serve",
    "sql": "write",
    "status": "read",
    "top": "top",
    "users": "users",
    "verify": "verify",
}

QUICK = ("get", "scan", "sql", "status")
_GARBAGE = 500_000  # objects between two looks for garbage


def main() -> None:
    """The console script."""
    command = _command(sys.argv[1:])
    if command in QUICK:
        # What it imports stays, and it ends soon: looks would take a tenth of its time.
        gc.set_threshold(_GARBAGE)
    import_module(f"viewkeep.cli.{MODULES.get(command, 'commands')}")
    from viewkeep.cli.app import app

    app()


def _command(arguments: Sequence[str]) -> str:
    """The command that is called, if its name is the first argument that is no option."""
    return next((text for text in arguments if not text.startswith("-")), "")
