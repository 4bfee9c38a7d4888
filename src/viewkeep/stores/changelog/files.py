"""Blobs as files in a folder: what a changelog needs of a file system.

Law: that of `contract.blobs`. Names are relative to the folder.

`LocalFiles` is for a folder that the system mounts (a local disk, NFS); it syncs. `ArrowFiles` is
for what PyArrow reaches: HDFS, S3, GCS, Azure. A file that was put must be listed from then on, by
every client: NFS needs the mount option `lookupcache=none` for that, others do it by themselves.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from viewkeep.errors import StoreError, StoreFull
from viewkeep.stores.contract import Blobs, Missing

_DRAFT = ".draft-"  # names that begin so are not listed
_ATOMIC_WRITES = ("s3", "gcs", "abfs")  # where a file appears when it is closed


def files_of(uri: str, sync: bool = True) -> Blobs:
    """The files of a folder, named by its path or by a URI; `sync` is for local ones."""
    if "://" not in uri:
        return LocalFiles(Path(uri), sync)
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return LocalFiles(Path(unquote(parts.path)), sync)
    try:
        system, root = fs.FileSystem.from_uri(uri)
    except Exception as error:
        raise StoreError(f"cannot reach the changelog at {uri}: {error}") from error
    return ArrowFiles(system, root)


class LocalFiles(Blobs):
    """Files of a folder that the system mounts."""

    def __init__(self, root: Path, sync: bool = True):
        self._root, self._sync = root, sync

    def put(self, name: str, data: bytes) -> bool:
        path = self._root / name
        draft = path.parent / f"{_DRAFT}{uuid.uuid4().hex}"
        try:
            self._write(draft, data)
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(draft)
            if self._sync:
                _sync_folder(path.parent)
        except OSError as error:
            raise _translated(error, f"cannot write {path}") from error
        return True

    def _write(self, draft: Path, data: bytes) -> None:
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._make_folder(draft.parent)
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise

    def _make_folder(self, folder: Path) -> None:
        """Make a folder whose name is durable too."""
        if folder.is_dir():
            return
        if folder.parent != folder:
            self._make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        if self._sync:
            _sync_folder(folder.parent)

    def get(self, name: str) -> bytes:
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError as error:
            raise Missing(f"there is no file {self._root / name}") from error
        except OSError as error:
            raise _translated(error, f"cannot read {self._root / name}") from error

    def names(self, folder: str) -> list[str]:
        try:
            found = os.listdir(self._root / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _translated(error, f"cannot list {self._root / folder}") from error
        return sorted(name for name in found if not name.startswith(_DRAFT))

    def size(self, name: str) -> int:
        try:
            return (self._root / name).stat().st_size
        except OSError:
            return 0

    def remove(self, name: str) -> None:
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise _translated(error, f"cannot remove {self._root / name}") from error

    def remove_folder(self, name: str) -> None:
        shutil.rmtree(self._root / name, ignore_errors=True)


class ArrowFiles(Blobs):
    """Files of a folder that PyArrow reaches.

    Where the system has no exclusive creation, two that put one name at the same moment may both
    believe that they did: names are of content that all agree on.
    """

    def __init__(self, system: fs.FileSystem, root: str):
        self._system, self._root = system, root.rstrip("/")

    def put(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        try:
            if self._is_there(path):
                return False
            if self._system.type_name in _ATOMIC_WRITES:
                self._write(path, data)
                return True
            folder = path.rpartition("/")[0]
            self._system.create_dir(folder, recursive=True)
            draft = f"{folder}/{_DRAFT}{uuid.uuid4().hex}"
            self._write(draft, data)
            try:
                self._system.move(draft, path)
            except OSError:
                with suppress(OSError):
                    self._system.delete_file(draft)
                if self._is_there(path):
                    return False
                raise
        except OSError as error:
            raise _translated(error, f"cannot write {path}") from error
        return True

    def _write(self, path: str, data: bytes) -> None:
        with self._system.open_output_stream(path, compression=None) as stream:
            stream.write(data)

    def _is_there(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type != fs.FileType.NotFound)

    def get(self, name: str) -> bytes:
        path = self._path(name)
        try:
            with self._system.open_input_stream(path, compression=None) as stream:
                return bytes(stream.read())
        except FileNotFoundError as error:
            raise Missing(f"there is no file {path}") from error
        except OSError as error:
            if not self._is_there(path):
                raise Missing(f"there is no file {path}") from error
            raise _translated(error, f"cannot read {path}") from error

    def names(self, folder: str) -> list[str]:
        chosen = fs.FileSelector(self._path(folder), allow_not_found=True)
        try:
            found = self._system.get_file_info(chosen)
        except OSError as error:
            raise _translated(error, f"cannot list {self._path(folder)}") from error
        names = (info.base_name for info in found)
        return sorted(name for name in names if not name.startswith(_DRAFT))

    def size(self, name: str) -> int:
        return int(self._system.get_file_info(self._path(name)).size or 0)

    def remove(self, name: str) -> None:
        try:
            self._system.delete_file(self._path(name))
        except OSError as error:
            if self._is_there(self._path(name)):
                raise _translated(error, f"cannot remove {self._path(name)}") from error

    def remove_folder(self, name: str) -> None:
        with suppress(OSError):
            self._system.delete_dir(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translated(error: OSError, what: str) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(f"{what}: {error}; make room and try again")
    return StoreError(f"{what}: {error}")
