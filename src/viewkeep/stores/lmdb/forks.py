"""Forks: a child leaves alone what its parent has open, and opens the database for itself.

Law: whatever a child does and however it ends, its parent's reader slots stay as they are.

py-lmdb keeps the last read transaction of an environment for the next one, and with it a slot in
the table of readers that all processes share. To close or free an environment ends that transaction
and frees its slot, even in a child, where the slot is the parent's: its pages could be reused while
it reads them. So a child keeps its parent's environments for ever, without using them.

It may open the same files all the same. LMDB forbids to open them twice in a process because a
process loses its POSIX locks on a file when it closes any descriptor of it; a child inherits no
such locks, and never closes the descriptors that it inherited.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, NoReturn

from lmdb import _envid

from viewkeep.errors import StoreError


class Inherited:
    """Stands in a child for an environment of its parent or its lock, which it must not use."""

    def __init__(self, parents: object):
        # One reference that nobody drops, since even the end of Python frees what it can.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(parents))

    def __getattr__(self, name: str) -> NoReturn:
        raise StoreError("this store was opened before a fork; open it again in this process")

    def __enter__(self) -> NoReturn:
        self.__getattr__("__enter__")

    def __exit__(self, *error: object) -> None:
        raise AssertionError("it was never entered")


def _file_keys(path: Any, subdir: Any, _inner: Any = _envid.env_keys) -> tuple[object, ...]:
    """How py-lmdb tells whether this process has the files of an environment open already.

    It remembers them by device and inode, and a child inherits that memory: so they are remembered
    together with the process.
    """
    process = os.getpid()
    return tuple((process, key) for key in _inner(path, subdir))


_envid.env_keys = _file_keys
