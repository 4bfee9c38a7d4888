"""What an HBase cluster needs for viewkeep, what of it is there, and how to get the rest.

Law: looking changes nothing that is there. The probe has a table of its own, which goes again.
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from viewkeep.errors import OutcomeUnknown, StoreError
from viewkeep.stores.hbase.connection import HbaseConnection, NoTable
from viewkeep.stores.hbase.log import HbaseLog
from viewkeep.stores.hbase.log_table import FAMILY, SERVERS
from viewkeep.stores.hbase.wire import Cell, Column, Family, Put

JAR: Final = Path(__file__).parent / "viewkeep-hbase.jar"
ENDPOINT: Final = "viewkeep.hbase.LogEndpoint"
PORT: Final = 9090
_PROBES = 8  # regions of the probe's table, so that more than one server has some
_FOREVER = 2**31 - 1
_DURABILITIES = {1: "SKIP_WAL"}


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, and may not do what one thinks
    MISSING = "missing"


class Check(NamedTuple):
    """One thing that was looked at, in a sentence; and what to do about it."""

    state: CheckState
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class InstallTarget:
    """A database of a cluster, by its url."""

    host: str
    port: int
    name: str

    @staticmethod
    def of(url: str) -> InstallTarget:
        parts = urlsplit(url if "//" in url else url.replace("hbase:", "hbase://", 1))
        try:
            port = parts.port or PORT
        except ValueError as error:
            raise StoreError(f"{url}: {error}") from error
        if parts.scheme != "hbase" or not parts.hostname:
            raise StoreError(f"{url} is not of a database in HBase; write hbase://HOST:PORT/NAME")
        return InstallTarget(parts.hostname, port, parts.path.strip("/") or "viewkeep")

    @property
    def log_table(self) -> str:
        return f"{self.name}:log"

    @property
    def peer(self) -> str:
        """The name that we propose for the replication peer."""
        return f"viewkeep_{self.name}"

    @property
    def shell(self) -> str:
        """What adds the peer in the HBase shell."""
        return (
            f"add_peer '{self.peer}', ENDPOINT_CLASSNAME => '{ENDPOINT}', SERIAL => true, "
            f"CONFIG => {{ 'viewkeep.log' => '{self.log_table}' }}"
        )


def prepare(connection: HbaseConnection, target: InstallTarget) -> None:
    """Make the namespace and the log table, where they are missing."""
    _log(connection, target).create()


def inspect(connection: HbaseConnection, target: InstallTarget, seconds: float) -> Iterator[Check]:
    """Look at everything; wait at most so long for a probe to arrive."""
    yield _check_jar()
    try:
        families = {family.name for family in connection.describe(target.log_table).families or ()}
    except NoTable:
        yield Check(
            CheckState.MISSING,
            f"The log table {target.log_table} does not exist.",
            "Run viewkeep hbase install without --check.",
        )
        return
    if missing := {b"h", b"s", b"b"} - families:
        names = ", ".join(sorted(name.decode() for name in missing))
        yield Check(
            CheckState.MISSING,
            f"The table {target.log_table} lacks the column families {names}.",
            "It is not a log of viewkeep's, or of another version. Choose another NAME.",
        )
        return
    yield Check(CheckState.OK, f"The log table {target.log_table} exists.")
    servers = list(_check_servers(connection, target))
    yield from servers
    for table in sorted(_log(connection, target).heads().tables):
        yield from _check_table(connection, table)
    if len(servers) > 1 or servers[0].state is not CheckState.MISSING:
        yield _probe(connection, target, seconds)


def _check_jar() -> Check:
    version = jar_version()
    if version is None:
        return Check(
            CheckState.WARNING,
            "This installation of viewkeep has no jar for region servers.",
            "Build it in a source checkout: make hbase-jar.",
        )
    return Check(CheckState.OK, f"The jar for region servers is {JAR} (version {version}).")


def _check_servers(connection: HbaseConnection, target: InstallTarget) -> Iterator[Check]:
    """Which region servers have said that they take part, since they last began."""
    found = connection.get(target.log_table, SERVERS, [Column(FAMILY)]).cells
    newest: dict[str, tuple[int, str, str]] = {}
    for cell in found:
        host, port, began = cell.qualifier.decode().rsplit(",", 2)
        known = (int(began), cell.qualifier.decode(), cell.value.decode())
        newest[f"{host}:{port}"] = max(known, newest.get(f"{host}:{port}", (0, "", "")))
    if not newest:
        yield Check(
            CheckState.MISSING,
            "No region server has begun to append to the log table.",
            f"1. Copy {JAR.name} to the lib folder of HBase on each region server, and restart "
            f"the region servers one by one.\n2. In the HBase shell:\n   {target.shell}",
        )
        return
    ours = jar_version()
    for address, (_, _, text) in sorted(newest.items()):
        peer, serial, version = text.split("\n")
        if serial != "serial":
            yield Check(
                CheckState.MISSING,
                f"Peer {peer} on {address} is not serial, so moved regions lose their order.",
                f"In the HBase shell: set_peer_serial '{peer}', true",
            )
        elif ours is not None and version != ours:
            yield Check(
                CheckState.WARNING,
                f"Region server {address} runs the jar of version {version}, not {ours}.",
                "Copy the jar and restart the region server when it suits you.",
            )
        else:
            yield Check(CheckState.OK, f"Region server {address} takes part, through peer {peer}.")


def _check_table(connection: HbaseConnection, name: str) -> Iterator[Check]:
    """A table whose changes the log is to have."""
    try:
        table = connection.describe(name)
    except NoTable:
        yield Check(CheckState.WARNING, f"Table {name} is logged but does not exist.")
        return
    sound = True
    for family in table.families or ():
        column = f"family {family.name.decode()} of table {name}"
        if family.scope != 1:
            sound = False
            yield Check(
                CheckState.MISSING,
                f"Changes of {column} are not logged.",
                f"In the HBase shell: alter '{name}', "
                f"{{ NAME => '{family.name.decode()}', REPLICATION_SCOPE => 1 }}",
            )
        if (family.seconds_to_live or _FOREVER) < _FOREVER:
            sound = False
            yield Check(
                CheckState.WARNING,
                f"Cells of {column} expire after {family.seconds_to_live} s, which HBase does "
                "not log: views keep them.",
                "Set TTL to FOREVER and delete what is to go, or leave the family out of views.",
            )
    if table.durability in _DURABILITIES:
        sound = False
        yield Check(
            CheckState.MISSING,
            f"Table {name} has the durability SKIP_WAL, so its changes are not logged.",
            f"In the HBase shell: alter '{name}', DURABILITY => 'SYNC_WAL'",
        )
    if sound:
        yield Check(CheckState.OK, f"Table {name} is logged.")


def _probe(connection: HbaseConnection, target: InstallTarget, seconds: float) -> Check:
    """Write rows to a table of several regions, and see whether they arrive."""
    log, table = _log(connection, target), f"{target.name}:probe"
    splits = [bytes([part]) for part in range(1, _PROBES)]
    connection.drop_table(table)
    connection.create_table(table, [Family(b"f", scope=1)], splits)
    log.add_table(table)
    try:
        before, at = log.head(), time.time_ns() // 1_000_000
        rows = [bytes([part]) for part in range(_PROBES)]
        connection.put(table, [Put(row, [Cell(b"f", b"p", b"", at)]) for row in rows])
        began = time.monotonic()
        log.after_write(before, {(table, row, at) for row in rows}, seconds)
        took = (time.monotonic() - began) * 1_000
        return Check(
            CheckState.OK, f"A probe of {_PROBES} regions was in the log after {took:.0f} ms."
        )
    except OutcomeUnknown:
        return Check(
            CheckState.MISSING,
            f"A probe of {_PROBES} regions was not in the log after {seconds:g} s.",
            "See the logs of the region servers for LogEndpoint, and whether the peer is there and "
            f"enabled (list_peers). In the HBase shell:\n   {target.shell}",
        )
    finally:
        with suppress(StoreError):
            log.drop_table(table)
            connection.drop_table(table)


def jar_version() -> str | None:
    """Of which sources the jar in this installation is; None if there is none."""
    try:
        with zipfile.ZipFile(JAR) as jar:
            manifest = jar.read("META-INF/MANIFEST.MF").decode()
    except (OSError, KeyError, zipfile.BadZipFile):
        return None
    return manifest.partition("Implementation-Version: ")[2].partition("\r\n")[0] or None


def _log(connection: HbaseConnection, target: InstallTarget) -> HbaseLog:
    return HbaseLog(connection, target.log_table, lambda change, tables: ())
