"""The types of `wire.py`; what the fields are stands in `wire.thrift`."""

from collections.abc import Mapping, Sequence
from typing import Any

HBase: Any

class ServerError(Exception):
    message: str | None
    can_retry: bool | None

class BadArgument(Exception):
    message: str | None

class Times:
    def __init__(self, start: int, stop: int): ...

class Column:
    family: bytes
    qualifier: bytes | None
    def __init__(
        self, family: bytes, qualifier: bytes | None = None, timestamp: int | None = None
    ): ...

class Cell:
    family: bytes
    qualifier: bytes
    value: bytes
    timestamp: int
    type: int | None
    def __init__(
        self, family: bytes, qualifier: bytes, value: bytes, timestamp: int | None = None
    ): ...

class Row:
    key: bytes | None
    cells: list[Cell]
    partial: bool | None

class Get:
    def __init__(
        self,
        row: bytes,
        columns: Sequence[Column] | None = None,
        times: Times | None = None,
        versions: int | None = None,
        filter: bytes | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
    ): ...

class Put:
    row: bytes
    cells: Sequence[Cell]
    timestamp: int | None
    def __init__(
        self,
        row: bytes,
        cells: Sequence[Cell],
        timestamp: int | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
    ): ...

class Deletion:
    VERSION: int
    CELLS: int
    FAMILY: int
    FAMILY_VERSION: int

class Delete:
    row: bytes
    columns: Sequence[Column] | None
    timestamp: int | None
    def __init__(
        self,
        row: bytes,
        columns: Sequence[Column] | None = None,
        timestamp: int | None = None,
        kind: int | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
    ): ...

class Scan:
    start: bytes | None
    stop: bytes | None
    limit: int | None
    def __init__(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        columns: Sequence[Column] | None = None,
        caching: int | None = None,
        versions: int | None = None,
        times: Times | None = None,
        filter: bytes | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
        reversed: bool | None = None,
        cache_blocks: bool | None = None,
        limit: int | None = None,
    ): ...

class Mutation:
    def __init__(self, put: Put | None = None, deletion: Delete | None = None): ...

class Mutations:
    def __init__(self, row: bytes, mutations: Sequence[Mutation]): ...

class Comparison:
    EQUAL: int

class Region:
    id: int
    table: bytes
    start: bytes | None
    stop: bytes | None
    replica: int | None

class Server:
    host: str
    port: int | None
    began: int | None

class RegionLocation:
    server: Server
    region: Region

class TableName:
    space: bytes | None
    qualifier: bytes
    def __init__(self, space: bytes | None, qualifier: bytes): ...

class KeepDeleted:
    NO: int
    YES: int
    TTL: int

class Family:
    name: bytes
    configuration: Mapping[str, str] | None
    keep_deleted: int | None
    versions: int | None
    least_versions: int | None
    scope: int | None
    seconds_to_live: int | None
    def __init__(
        self,
        name: bytes,
        attributes: Mapping[bytes, bytes] | None = None,
        configuration: Mapping[str, str] | None = None,
        keep_deleted: int | None = None,
        versions: int | None = None,
        least_versions: int | None = None,
        scope: int | None = None,
        seconds_to_live: int | None = None,
    ): ...

class Table:
    name: TableName
    families: list[Family] | None
    attributes: Mapping[bytes, bytes] | None
    durability: int | None
    def __init__(
        self,
        name: TableName,
        families: Sequence[Family] | None = None,
        attributes: Mapping[bytes, bytes] | None = None,
        durability: int | None = None,
    ): ...

class Namespace:
    def __init__(self, name: str): ...
