"""Files to load: a path, a folder, a glob or several of them, as record batches.

Law: the same folder gives the same files in the same order, and of a file the same rows in the same
order. Names that begin with `_` or `.` are left out, as Spark and others do: marks of success, and
files that are still being written. A folder `day=2026-01-01` gives its files a column `day`.
"""

from __future__ import annotations

import glob as globbing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from viewkeep.deferred import pa
from viewkeep.errors import InvalidRow

FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # what Spark and Hive call NULL in the name of a folder


@dataclass(frozen=True)
class LoadBatches:
    """Record batches to load. `text`: values are strings to be parsed, as in a CSV file."""

    batches: Iterator[pa.RecordBatch]
    total: int | None = None
    text: bool = False


@dataclass(frozen=True)
class DataFile:
    """A file with rows, and the columns that the names of its folders give."""

    path: Path
    kind: str
    constants: tuple[tuple[str, str | None], ...] = field(default=())

    @contextmanager
    def open(self, size: int) -> Iterator[LoadBatches]:
        """Its record batches of at most `size` rows; the file is closed at the end."""
        opener = {"parquet": _parquet, "csv": _csv, "arrow": _arrow}[self.kind]
        try:
            with opener(self.path, size) as batches:
                yield batches
        except pa.ArrowInvalid as error:
            name = self.path.name
            raise InvalidRow(f"{name} is not a readable {self.kind} file: {error}") from error


def data_files(source: str | Path | Sequence[str | Path], format: str | None) -> list[DataFile]:
    """The files of a path, folder or glob, or of several, in the order of their names."""
    if isinstance(source, (str, Path)):
        return list(_expand(Path(source), format))
    return [file for item in source for file in _expand(Path(item), format)]


def _expand(path: Path, format: str | None) -> Iterator[DataFile]:
    if path.is_dir():
        found = list(files_inside(path, format))
        if not found:
            raise InvalidRow(f"{path} holds no Parquet, CSV or Arrow file")
        yield from found
    elif path.is_file():
        yield _data_file(path, format)
    elif globbing.has_magic(str(path)):
        matches = sorted(globbing.glob(str(path), recursive=True))
        if not matches:
            raise InvalidRow(f"no file matches {path}")
        for match in matches:
            yield from _expand(Path(match), format)
    else:
        raise InvalidRow(f"there is no file {path}")


def files_inside(folder: Path, format: str | None) -> Iterator[DataFile]:
    """The files of a folder and of those in it, in the order of their names."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(("_", ".")) for part in parts):
            kind = format or FORMATS.get(path.suffix.lower())
            if kind is None:
                raise InvalidRow(_unknown(path))
            yield _data_file(path, kind, _constants(parts[:-1]))


def _constants(folders: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    pairs = (folder.split("=", 1) for folder in folders if "=" in folder)
    return tuple(
        (unquote(name), None if value == _NO_VALUE else unquote(value)) for name, value in pairs
    )


def _data_file(
    path: Path, format: str | None, constants: tuple[tuple[str, str | None], ...] = ()
) -> DataFile:
    kind = format or FORMATS.get(path.suffix.lower())
    if kind not in set(FORMATS.values()):
        raise InvalidRow(_unknown(path))
    return DataFile(path, kind, constants)


def _unknown(path: Path) -> str:
    return f"the format of {path.name} is not known; give one of parquet, csv, arrow"


@contextmanager
def _parquet(path: Path, size: int) -> Iterator[LoadBatches]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield LoadBatches(file.iter_batches(batch_size=size), file.metadata.num_rows)


@contextmanager
def _csv(path: Path, size: int) -> Iterator[LoadBatches]:
    """All columns as text: the schema says what they mean, and a bad value gets its row number."""
    from pyarrow import csv

    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").strip()
    names = next(iter(_fields(header)), [])
    convert = csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
    )
    with csv.open_csv(path, convert_options=convert) as reader:
        yield LoadBatches(sliced(iter(reader), size), text=True)


def _fields(line: str) -> Iterator[list[str]]:
    import csv

    yield from csv.reader([line])


@contextmanager
def _arrow(path: Path, size: int) -> Iterator[LoadBatches]:
    with pa.memory_map(str(path)) as mapped:
        try:
            file = pa.ipc.open_file(mapped)
        except pa.ArrowInvalid:
            yield LoadBatches(sliced(iter(pa.ipc.open_stream(mapped)), size))
            return
        parts = (file.get_batch(index) for index in range(file.num_record_batches))
        yield LoadBatches(sliced(parts, size))


def sliced(batches: Iterator[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The batches cut to at most `size` rows."""
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
