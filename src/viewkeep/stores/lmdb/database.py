"""A database on disk: a folder of LMDB environments, and the file that says how to open it.

Law: a folder is a database exactly when it holds `viewkeep.json`, which is written last.

    shop/
    ├── viewkeep.json      format version, nodes, shards, durability, map size, lock seconds,
    │                      max size; the id of the changelog of state apart, whether it is here
    ├── meta/              meta records
    ├── node-0/ ...        base rows and log of a node: dbs `rows`, `log`, `info`
    ├── shard-0/ ...       versioned state rows of a shard: dbs `rows`, `sweep`, `info`
    └── blobs/             the changelog of state that is apart, if it is here

Durability `full` syncs every commit: acknowledged writes survive kill -9 and power loss. `relaxed`
leaves syncing of base and state to the system: they survive kill -9, but a power loss may lose or
damage recent writes; it is meant for bulk loads. Meta records are always synced.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from viewkeep.errors import Corrupt, FormatVersion, NoDatabase, StoreError
from viewkeep.stores.lmdb.environment import (
    Environment,
    closed_to_others,
    make,
    release,
    share,
    sync_folder,
    translate_system,
)
from viewkeep.stores.lmdb.last_commit import recover
from viewkeep.stores.lmdb.locks import DEFAULT_SECONDS

FORMAT = 6
SETTINGS = "viewkeep.json"
DEFAULT_MAP = 1 << 40
NODE_DBS = ("rows", "log", "info")
SHARD_DBS = ("rows", "sweep", "info")
SMALLEST = 1 << 20  # max_size; an empty database holds less
META_DBS = ("records",)
BLOB_DBS = ("blobs",)
_DRAFT = ".viewkeep-"
_DURABILITIES = ("full", "relaxed")


@dataclass(frozen=True)
class FolderSettings:
    """What `viewkeep.json` holds."""

    nodes: int = 2
    shards: int = 2
    durability: str = "full"
    map_size: int = DEFAULT_MAP
    lock_seconds: float = DEFAULT_SECONDS
    changelog: str = ""  # the id of the changelog that has the state; empty: state is here
    blobs: bool = False  # whether the changelog is in this folder too
    max_size: int | None = None  # bytes in use, after which no rows are taken (`room`)

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.shards < 1 or self.shards % self.nodes:
            raise StoreError(
                f"{self.shards} shards over {self.nodes} nodes: shards must be a multiple of nodes"
            )
        if self.durability not in _DURABILITIES:
            raise StoreError(f"durability {self.durability!r} is none of {_DURABILITIES}")
        if self.max_size is not None and self.max_size < SMALLEST:
            raise StoreError(f"max_size is at least {SMALLEST} bytes")

    def folders(self) -> list[tuple[str, tuple[str, ...]]]:
        """Every environment of the database: folder name and named dbs."""
        return [
            ("meta", META_DBS),
            *((f"node-{index}", NODE_DBS) for index in range(self.nodes)),
            *((f"shard-{index}", SHARD_DBS) for index in range(self.shards)),
            *([("blobs", BLOB_DBS)] if self.blobs else []),
        ]


@dataclass(frozen=True)
class DatabaseFolder:
    """The open environments of one database."""

    path: Path
    settings: FolderSettings
    meta: Environment
    nodes: tuple[Environment, ...]
    shards: tuple[Environment, ...]
    blobs: Environment | None = None

    def close(self) -> None:
        """Give back all environments, also those after one that cannot be synced."""
        with ExitStack() as stack:
            for environment in (self.meta, *self.nodes, *self.shards, self.blobs):
                if environment is not None:
                    stack.callback(release, environment)


def create_database(path: Path, settings: FolderSettings) -> None:
    """Make an empty database; a folder left by a creation that was interrupted is taken over."""
    if (path / SETTINGS).exists():
        raise StoreError(f"{path} is a database already")
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file; a database needs a folder")
    folders = settings.folders()
    if path.exists() and (other := _foreign(path, {name for name, _ in folders})):
        raise StoreError(f"{path} holds other files, such as {other}")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, dbs in folders:
            make(path / name, dbs, settings.map_size)
        _write_settings(path, settings)
    except OSError as error:
        raise translate_system(error, f"cannot make a database at {path}") from error


def open_database(path: Path) -> DatabaseFolder:
    """Open the environments of an existing database, shared within this process."""
    settings = read_settings(path)
    opened: list[Environment] = []
    try:
        for name, dbs in settings.folders():
            sync = name == "meta" or settings.durability == "full"
            opened.append(
                share(
                    path / name,
                    dbs,
                    settings.map_size,
                    sync=sync,
                    lock_seconds=settings.lock_seconds,
                    recover=recover if sync and dbs == NODE_DBS else None,
                )
            )
    except BaseException:
        for environment in opened:
            release(environment)
        raise
    blobs = opened.pop() if settings.blobs else None
    first_shard = 1 + settings.nodes
    nodes, shards = tuple(opened[1:first_shard]), tuple(opened[first_shard:])
    return DatabaseFolder(path, settings, opened[0], nodes, shards, blobs)


def drop_database(path: Path) -> None:
    """Remove a database; StoreError, and nothing removed, if a process has it open.

    The settings go first, so what is left by a removal that was interrupted is no database.
    """
    settings = read_settings(path)
    names = [name for name, _ in settings.folders()]
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(closed_to_others(path / name))
        try:
            (path / SETTINGS).unlink()
            sync_folder(path)
            for name in names:
                shutil.rmtree(path / name)
            for entry in path.glob(f"{_DRAFT}*"):
                entry.unlink()
            if not any(path.iterdir()):  # what others have put there is not ours to remove
                path.rmdir()
        except OSError as error:
            raise translate_system(error, f"cannot remove the database at {path}") from error


def read_settings(path: Path) -> FolderSettings:
    """The settings of the database in this folder, if this version of viewkeep can open it."""
    file = path / SETTINGS
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        version = content.pop("format")
        if not isinstance(version, int):
            raise ValueError("format is not a number")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoDatabase(f"there is no database at {path}") from error
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Corrupt(f"{file} is damaged: {error}") from error
    if version > FORMAT:
        raise FormatVersion(
            f"{path} was written by a newer viewkeep (format {version}; this one reads {FORMAT}); "
            "upgrade viewkeep to open it"
        )
    if version < FORMAT:
        raise FormatVersion(
            f"{path} was written by an older viewkeep (format {version}; this one reads {FORMAT}); "
            "open it with that version, export its tables, and load them into a new database"
        )
    try:
        return FolderSettings(**content)
    except (TypeError, StoreError) as error:
        raise Corrupt(f"{file} is damaged: {error}") from error


def _foreign(path: Path, ours: set[str]) -> str | None:
    """The name of a file here that no interrupted creation can have left."""
    for name in sorted(entry.name for entry in path.iterdir()):
        if name not in ours and not name.startswith(_DRAFT):
            return name
    return None


def _write_settings(path: Path, settings: FolderSettings) -> None:
    """Publish the settings file whole and durable; of two creators only one succeeds."""
    draft = path / f"{_DRAFT}{os.getpid()}.json"
    private = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(private, "w", encoding="utf-8") as file:
        content = {name: value for name, value in asdict(settings).items() if value is not None}
        if not settings.changelog:
            del content["changelog"], content["blobs"]
        json.dump({"format": FORMAT, **content}, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path / SETTINGS)
    except FileExistsError as error:
        raise StoreError(f"{path} is a database already") from error
    finally:
        draft.unlink()
    sync_folder(path)
