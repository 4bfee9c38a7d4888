"""The process that runs DuckDB: a script of its own, which imports nothing of viewkeep.

Law: it answers one request at a time, sees only the rows that come with a request, and reaches
neither files nor the network. It never takes more memory than a request allows, and ends when its
parent ends, when it has nothing to do for a minute, or after a request that left it large.

A request is a length, a JSON header and a file descriptor. The file holds an Arrow stream for each
relation. The answer has the same form; its file holds one Arrow stream, the result.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import select
import socket
import struct
import sys
import threading
from typing import Any

import duckdb
import pyarrow as pa

IDLE_SECONDS = 60
LARGE = 64 << 20  # bytes that a request may leave behind; after more the process ends
BATCH_ROWS = 10_000
NICE = 10  # lower priority than the server that answers point reads
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",  # Python variables are no tables
    "temp_directory": "",
    "threads": "2",
}


class _Refused(Exception):
    """An error with a kind that the parent knows."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


def open_duck(memory: int) -> Any:
    """An empty DuckDB in memory that can reach nothing outside."""
    duck = duckdb.connect(":memory:", config=SETTINGS | {"memory_limit": f"{memory}B"})
    duck.execute("SET TimeZone = 'UTC'")
    duck.execute("SET lock_configuration = true")
    return duck


def main(descriptor: int) -> None:
    """Answer requests until the parent ends."""
    parent = socket.socket(fileno=descriptor)
    os.nice(NICE)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    ready = select.poll()
    ready.register(parent, select.POLLIN)
    duck: Any = None
    memory = base = 0
    while ready.poll(IDLE_SECONDS * 1000):
        request, file = _receive(parent)
        if request is None or file is None:
            return
        if duck is None or request["memory"] != memory:
            memory = request["memory"]
            duck = open_duck(memory)
            base = _figure("VmData")
        try:
            # DuckDB's own limit does not count what scalar functions allocate; the kernel does.
            _limit_data(max(0, memory - os.fstat(file).st_size) + base)
            answer, result = _answered(duck, request, file)
        except Exception as error:
            answer, result = _failure(error), os.memfd_create("viewkeep-none")
        finally:
            _limit_data(resource.RLIM_INFINITY)
        os.close(file)
        answer["large"] = _figure("VmData") - base > LARGE  # what the allocator keeps is counted
        _send(parent, answer, result)
        os.close(result)
        if answer["large"]:
            return


def _answered(duck: Any, request: dict[str, Any], file: int) -> tuple[dict[str, Any], int]:
    """Run a request in a connection of its own: the names and types of its columns, its rows."""
    result = os.memfd_create("viewkeep-result")
    # It is unmapped when the last table over it is gone.
    whole = pa.py_buffer(mmap.mmap(file, 0, prot=mmap.PROT_READ))
    with duck.cursor() as cursor:
        try:
            for name, start, end in request["relations"]:
                with pa.ipc.open_stream(whole.slice(start, end - start)) as stream:
                    cursor.register(name, stream.read_all())
            asked = cursor.sql(request["text"])
            answer = {"names": asked.columns, "types": [str(type_) for type_ in asked.types]}
            if request["run"]:
                _write(asked.to_arrow_reader(BATCH_ROWS), result, request)
        except BaseException:
            os.close(result)
            raise
    return answer, result


def _write(reader: pa.RecordBatchReader, file: int, request: dict[str, Any]) -> None:
    """Write the result as it is produced, and stop where it is too large."""
    rows = size = 0
    with os.fdopen(os.dup(file), "wb") as out, pa.ipc.new_stream(out, reader.schema) as writer:
        for batch in reader:
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows > request["rows"]:
                raise _Refused("rows", "")
            if size > request["bytes"]:
                raise _Refused("bytes", "")
            writer.write_batch(batch)


def _failure(error: Exception) -> dict[str, Any]:
    """An error as the parent takes it; what fails in the middle of a result has no class."""
    kind, message = type(error).__name__, str(error).strip()
    if isinstance(error, _Refused):
        kind = error.kind
    elif isinstance(error, MemoryError) or "Out of Memory" in message or "bad_alloc" in message:
        kind = "memory"
    return {"error": kind, "message": (message.splitlines() or [kind])[0]}


def _limit_data(size: int) -> None:
    """Let this process have so many bytes of memory of its own; what it has already counts."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, resource.RLIM_INFINITY))


def _figure(name: str) -> int:
    """Bytes that the kernel counts for this process under a name."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def _end_with(parent: socket.socket) -> None:
    """End this process, whatever DuckDB is doing, when the parent has gone."""
    gone = select.poll()
    gone.register(parent, select.POLLRDHUP)
    gone.poll()
    os._exit(0)


def _receive(parent: socket.socket) -> tuple[dict[str, Any] | None, int | None]:
    head, files, _, _ = socket.recv_fds(parent, 4, 1)
    if len(head) < 4:
        return None, None
    (left,) = struct.unpack("<I", head)
    parts = []
    while left:
        part = parent.recv(min(left, 1 << 20))
        if not part:
            return None, None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), files[0]


def _send(parent: socket.socket, answer: dict[str, Any], file: int) -> None:
    body = json.dumps(answer).encode()
    socket.send_fds(parent, [struct.pack("<I", len(body))], [file])
    parent.sendall(body)


if __name__ == "__main__":
    main(int(sys.argv[1]))
