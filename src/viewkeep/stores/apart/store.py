"""The connector `apart:PATH?state=FOLDER&changelog=FOLDER`.

Law: base tables, logs, meta records and views are those of the embedded store at PATH, which other
stores refuse to open; state is a cache in the folder of each machine, and durable in the changelog.
Without `changelog`, it is a table of the store (`contract.blobs`).

The environment variable VIEWKEEP_STATE has precedence over `state`, so that each worker of a
cluster, which all get the same url, has a folder on its own disk.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl

from viewkeep.errors import StoreError
from viewkeep.stores.apart.state import ApartState
from viewkeep.stores.changelog import BlobChangelog, files_of
from viewkeep.stores.contract import Capabilities, Sizes, Store, TableSize
from viewkeep.stores.lmdb import LmdbStore, redo
from viewkeep.stores.lmdb.blobs import LmdbBlobs
from viewkeep.stores.lmdb.database import (
    DEFAULT_MAP,
    SETTINGS,
    FolderSettings,
    create_database,
    open_database,
)
from viewkeep.stores.lmdb.parts import Opened

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
        uri, id = options["changelog"], uuid.uuid4().hex
        if uri:
            BlobChangelog.create(uri, files_of(uri, durability == "full"), id)
        is_here = not uri
        create_database(
            folder,
            FolderSettings(nodes, shards, durability, map_size, changelog=id, blobs=is_here),
        )
        return cls.open(path)

    @classmethod
    def open(cls, path: str) -> ApartStore:
        """Open an existing database; after a fork, the child opens its own."""
        folder, options = _parse(path)
        database = open_database(folder)
        settings, inner = database.settings, LmdbStore(database)
        try:
            if not settings.changelog:
                raise StoreError(f"the database at {folder} has its state; open it as {folder}")
            changelog = _changelog(folder, settings, options["changelog"])
            if changelog.id != settings.changelog:
                raise StoreError(
                    f"{changelog.uri} is the changelog of another database than {folder}"
                )
            redo.complete(database.nodes)
            replicas = Path(options["state"]).absolute() / changelog.id
            state = share_state(replicas, settings.shards, changelog, settings.map_size)
        except BaseException:
            inner.close()
            raise
        uri = options["changelog"]
        url = f"apart:{folder}?state={options['state']}" + (f"&changelog={uri}" if uri else "")
        return cls(url, inner, state)

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
            release_state(self.state)
        self.inner.close()


def _parse(rest: str) -> tuple[Path, Mapping[str, str]]:
    """The path and the options of a url, relative paths made absolute."""
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := options.keys() - {"state", "changelog"}:
        raise StoreError(f"apart:{rest}: unknown options {sorted(unknown)}")
    options["state"] = os.environ.get(VARIABLE) or options.get("state", "")
    if not path or not options["state"]:
        raise StoreError(
            f"apart:{rest}: a url of this kind is apart:PATH?state=FOLDER&changelog=FOLDER; "
            f"the variable {VARIABLE} may give the state's folder, and the store keeps the "
            "changelog if it has no folder"
        )
    uri = options.setdefault("changelog", "")
    if uri and "://" not in uri:
        options["changelog"] = os.path.abspath(uri)
    options["state"] = os.path.abspath(options["state"])
    return Path(path).absolute(), options


def _changelog(folder: Path, settings: FolderSettings, uri: str) -> BlobChangelog:
    """The changelog in a folder, or in the store; it lives on when the store is closed."""
    if uri:
        return BlobChangelog.open(uri, files_of(uri, settings.durability == "full"))
    if not settings.blobs:
        raise StoreError(
            f"the changelog of {folder} is in a folder of its own; open it as "
            f"apart:{folder}?state=FOLDER&changelog=FOLDER"
        )
    database = open_database(folder)
    try:
        blobs = LmdbBlobs(Opened(f"lmdb:{folder}", database))
        return BlobChangelog.begin(f"apart:{folder}", blobs, settings.changelog)
    except BaseException:
        database.close()
        raise


_lock = threading.Lock()
_shared: dict[tuple[Path, str], tuple[ApartState, int]] = {}  # with their uses


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it
    _shared.clear()


os.register_at_fork(after_in_child=_after_fork)


def share_state(
    folder: Path, shards: int, changelog: BlobChangelog, map_size: int = DEFAULT_MAP
) -> ApartState:
    """This process's replicas in a folder: what they have replayed is known to all its stores.

    It closes the changelog. Give it back with `release_state`.
    """
    with _lock:
        found = _shared.get((folder, changelog.uri))
        if found is not None:
            changelog.close()
        else:
            _begin(folder)
            found = ApartState(folder, shards, changelog, map_size), 0
        _shared[folder, changelog.uri] = found[0], found[1] + 1
        return found[0]


def release_state(state: ApartState) -> None:
    """Give back what `share_state` gave; the last one closes it."""
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
