"""The structs of `wire.thrift` as classes; `wire.pyi` has their types."""

from __future__ import annotations

from pathlib import Path

from viewkeep.errors import StoreError

try:
    import thriftpy2
except ImportError as missing:
    raise StoreError("HBase needs another package: pip install 'viewkeep[hbase]'") from missing

_module = thriftpy2.load(
    str(Path(__file__).with_name("wire.thrift")), module_name="viewkeep_hbase_thrift"
)

HBase = _module.HBase
ServerError, BadArgument = _module.ServerError, _module.BadArgument
Cell, Column, Row, Times = _module.Cell, _module.Column, _module.Row, _module.Times
Get, Put, Delete, Deletion, Scan = (
    _module.Get,
    _module.Put,
    _module.Delete,
    _module.Deletion,
    _module.Scan,
)
Mutation, Mutations, Comparison = _module.Mutation, _module.Mutations, _module.Comparison
Region, RegionLocation, Server = _module.Region, _module.RegionLocation, _module.Server
Table, TableName, Family = _module.Table, _module.TableName, _module.Family
KeepDeleted, Namespace = _module.KeepDeleted, _module.Namespace
