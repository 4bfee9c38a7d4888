"""The connector `apart:PATH?state=FOLDER&changelog=FOLDER`.

Law: base tables, logs, meta records and views are those of the embedded store at PATH, which other
stores refuse to open; state is a cache in the folder of each machine, and durable in the changelog.

The environment variable VIEWKEEP_STATE has precedence over `state`, so that each worker of a
cluster, which all get the same url, has a folder on its own disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from viewkeep.errors import StoreError
from viewkeep.stores.apart.state import ApartState
from viewkeep.stores.changelog import FolderChangelog
from viewkeep.stores.contract import Capabilities, Sizes, Store, TableSize
from viewkeep.stores.lmdb import LmdbStore, redo
from viewkeep.stores.lmdb.database import (
    DEFAULT_MAP,
    SETTINGS,
    FolderSettings,
    create_database,
    open_database,
)

VARIABLE = "VIEWKEEP_STATE"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class ApartStore(Store):
    """An embedded store whose state is apart."""

    capabilities = Capabilities(shared_state=False, views_apart=True)
    state: ApartState

    def __init__(self, url: str, inner: LmdbStore, state: ApartState):
        self.url, self.inner = url, inner
        self.log, self.tables, self.meta = inner.log, inner.tables, inner.meta
        self.state, self.views = state, inner.views
        self._is_closed = False

    @classmethod
    def create(
        cls,
        path: str,
        nodes: int = 2,
        shards: int = 2,
        durability: str = "full",
        map_size: int = DEFAULT_MAP,
    ) -> ApartStore:
        """Make an empty database and an empty changelog, and open them."""
        folder, options = _parse(path)
        if (folder / SETTINGS).exists():
            raise StoreError(f"{folder} is a database already")
        changelog = FolderChangelog.create(options["changelog"], durability == "full")
        settings = FolderSettings(nodes, shards, durability, map_size, changelog=changelog.id)
        create_database(folder, settings)
        return cls.open(path)

    @classmethod
    def open(cls, path: str) -> ApartStore:
        """Open an existing database; after a fork, the child opens its own."""
        folder, options = _parse(path)
        database = open_database(folder)
        try:
            settings = database.settings
            if not settings.changelog:
                raise StoreError(f"the database at {folder} has its state; open it as {folder}")
            sync = settings.durability == "full"
            changelog = FolderChangelog.open(options["changelog"], sync)
            if changelog.id != settings.changelog:
                raise StoreError(
                    f"{changelog.uri} is the changelog of another database than {folder}"
                )
            replicas = Path(options["state"]).absolute() / changelog.id
            redo.complete(database.nodes)
        except BaseException:
            database.close()
            raise
        state = _share(replicas, settings, changelog)
        url = f"apart:{folder}?state={options['state']}&changelog={options['changelog']}"
        return cls(url, LmdbStore(database), state)

    def ticks(self) -> object:
        return self.inner.ticks()

    def sizes(self) -> Sizes:
        """State is what this machine has of it; views are whole."""
        sizes, tables = self.inner.sizes(), dict[int, TableSize]()
        for replica in self.state.replicas:
            for table, size in replica.sizes().items():
                tables[table] = tables.get(table, TableSize()) + size
        tables |= sizes.tables
        used = sum(replica.used_bytes for replica in self.state.replicas)
        return Sizes(sizes.base_bytes, sizes.state_bytes + used, sizes.log_operations, tables)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            _release(self.state)
        self.inner.close()


def _parse(rest: str) -> tuple[Path, Mapping[str, str]]:
    """The path and the options of a url, relative paths made absolute."""
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - {"state", "changelog"}:
        raise StoreError(f"apart:{rest}: unknown options {sorted(unknown)}")
    options["state"] = os.environ.get(VARIABLE) or options.get("state", "")
    if not path or not options["state"] or not options.get("changelog"):
        raise StoreError(
            f"apart:{rest}: a url of this kind is apart:PATH?state=FOLDER&changelog=FOLDER; "
            f"the variable {VARIABLE} may give the state's folder"
        )
    if "://" not in options["changelog"]:
        options["changelog"] = os.path.abspath(options["changelog"])
    options["state"] = os.path.abspath(options["state"])
    return Path(path).absolute(), options


_lock = threading.Lock()
_shared: dict[tuple[Path, str], tuple[ApartState, int]] = {}  # with their uses


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)


def _share(folder: Path, settings: FolderSettings, changelog: FolderChangelog) -> ApartState:
    """This process's replicas in a folder: what they have replayed is known to all its stores."""
    with _lock:
        found = _shared.get((folder, changelog.uri))
        if found is None:
            _begin(folder)
            found = ApartState(folder, settings.shards, changelog, settings.map_size), 0
        _shared[folder, changelog.uri] = found[0], found[1] + 1
        return found[0]


def _release(state: ApartState) -> None:
    with _lock:
        for key, (candidate, uses) in list(_shared.items()):
            if candidate is state:
                _shared[key] = state, uses - 1
                if uses == 1:
                    del _shared[key]
                    state.close()


def _begin(folder: Path) -> None:
    """Remove replicas of an earlier boot: they are not synced, and the power may have failed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    written = folder / "boot"
    handle = os.open(folder.with_name(f"{folder.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if boot and (not written.exists() or written.read_text() != boot):
            for entry in folder.iterdir():
                if entry.is_dir():
                    shutil.rmtree(entry)
            written.write_text(boot)
    finally:
        os.close(handle)
