"""The disk under a campaign: a preloaded library that loses unsynced writes and runs full.

Law: without the library, or between rounds, every call is the system's. `build` makes the library
from `disk.c`; the campaign starts itself again with it preloaded, since LMDB writes its files by
system calls that Python cannot see.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("disk.c")
VARIABLE = "VIEWKEEP_CAMPAIGN_DISK"  # the path of the preloaded library
FULL, POWER = 1, 2


def build() -> Path | None:
    """Compile the library; None if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return None
    target = Path(tempfile.gettempdir()) / f"viewkeep-campaign-{os.getuid()}-{os.getpid()}.so"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-O2",
        "-o",
        str(target),
        str(SOURCE),
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True)
    return target


class Disk:
    """The controls of the preloaded library; does nothing where there is none."""

    def __init__(self) -> None:
        path = os.environ.get(VARIABLE)
        self._lib = None if path is None else ctypes.CDLL(path)
        if self._lib is not None:
            self._lib.disk_lose.restype = ctypes.c_long
            self._lib.disk_lose.argtypes = [ctypes.c_uint64, ctypes.c_int]
            for name in ("disk_writes", "disk_syncs", "disk_faults"):
                getattr(self._lib, name).restype = ctypes.c_long

    @property
    def is_there(self) -> bool:
        return self._lib is not None

    def begin(self, folder: Path) -> None:
        """Remember what is written below this folder from now on."""
        if self._lib is not None:
            self._lib.disk_begin(os.fsencode(folder))

    def end(self) -> None:
        if self._lib is not None:
            self._lib.disk_end()

    def run_full(self, after: int, times: int, is_short: bool) -> None:
        """The write number `after` from now, and `times` in all, find no space."""
        if self._lib is not None:
            self._lib.disk_arm(FULL, after, times, int(is_short))

    def cut_power(self, after: int) -> None:
        """The machine dies at write or sync number `after` from now."""
        if self._lib is not None:
            self._lib.disk_arm(POWER, after, 0, 0)

    def disarm(self) -> None:
        if self._lib is not None:
            self._lib.disk_disarm()

    def freeze(self) -> None:
        """The machine is dead: nothing reaches the files any more."""
        if self._lib is not None:
            self._lib.disk_freeze()

    @property
    def is_dead(self) -> bool:
        return self._lib is not None and bool(self._lib.disk_is_dead())

    @property
    def faults(self) -> int:
        return 0 if self._lib is None else int(self._lib.disk_faults())

    def lose(self, seed: int, keep: int) -> int:
        """Power is back: what was not synced is kept sector by sector with keep % chance."""
        return 0 if self._lib is None else int(self._lib.disk_lose(seed, keep))
