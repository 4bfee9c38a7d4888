"""Other processes for the store tests: workers that are started, watched by line, and killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import viewkeep.stores

WORKERS = Path(__file__).with_name("workers.py")


def environment() -> dict[str, str]:
    """This process's environment, in which `viewkeep` is the one under test."""
    source = Path(viewkeep.stores.__file__).parents[2]
    return {**os.environ, "PYTHONPATH": str(source)}


def run_python(*arguments: str) -> str:
    """Run Python to its end, for a minute at most; what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        env=environment(),
        stdout=subprocess.PIPE,
        timeout=60,
    )
    return done.stdout.decode()


class Worker:
    """A running worker of `workers.py`; it prints a line for each step it has finished."""

    def __init__(self, name: str, path: Path, *arguments: object):
        self.process = subprocess.Popen(
            [sys.executable, str(WORKERS), name, str(path), *map(str, arguments)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> list[str]:
        """kill -9; the lines it had still printed."""
        self.process.kill()
        rest = self._rest()
        # A line without its end was not acknowledged.
        return rest.split("\n")[:-1]

    def finish(self) -> list[str]:
        """Wait for its end; the lines it had still printed."""
        rest = self._rest()
        assert self.process.returncode == 0
        return rest.splitlines()

    def _rest(self) -> str:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            rest = stdout.read()
        self.process.wait()
        return rest
