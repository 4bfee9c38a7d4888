"""For Python processes that a test starts: md5('poison') does what $VIEWKEEP_POISON says.

Python imports it at its start, if its folder is on the path.
"""

from __future__ import annotations

import hashlib
import os
import signal


def _act(what: str) -> None:
    if what == "raise":
        raise ValueError("the well is poisoned")
    if what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "hog":
        held = []
        while True:
            held.append(bytearray(64 << 20))
    while what == "loop":
        pass


def _poison(what: str) -> None:
    from viewkeep.ops.functions import hashes

    def md5(data: bytes) -> str:
        if data == b"poison":
            _act(what)
        return hashlib.md5(data).hexdigest()

    hashes._md5 = md5  # type: ignore[attr-defined]


if os.environ.get("VIEWKEEP_POISON"):
    _poison(os.environ["VIEWKEEP_POISON"])
