"""information_schema: the tables, views and columns of the database, as tables that tools query.

Law: every table has all the columns that MySQL's clients ask for; what does not exist here
(routines, triggers, foreign keys) is a table without rows, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from viewkeep.database import Database
from viewkeep.deferred import pl
from viewkeep.engine.budget import hold
from viewkeep.plan.nodes import Source
from viewkeep.serve.mysql.catalog.declare import Declared, declared_of
from viewkeep.serve.mysql.catalog.variables import CHARSET, COLLATION, ENGINE
from viewkeep.serve.mysql.faults import DATABASE_NAME, Fault

_ROW_BYTES = 1_000  # of a row while it is made, about
SCHEMAS = ("information_schema", DATABASE_NAME)
_SIZES = re.compile(r"\((\d+)(?:,(\d+))?\)")
_TEXT_LENGTHS = {
    "tinytext": 255, "text": 65_535, "mediumtext": 16_777_215, "longtext": 4_294_967_295,
    "tinyblob": 255, "blob": 65_535, "mediumblob": 16_777_215, "longblob": 4_294_967_295,
}  # fmt: skip
_DIGITS = {"tinyint": 3, "smallint": 5, "mediumint": 7, "int": 10, "bigint": 19, "double": 22}

_COLUMNS: dict[str, str] = {
    "schemata": "catalog_name schema_name default_character_set_name default_collation_name "
    "sql_path default_encryption",
    "tables": "table_catalog table_schema table_name table_type engine version:n row_format "
    "table_rows:n avg_row_length:n data_length:n max_data_length:n index_length:n data_free:n "
    "auto_increment:n create_time update_time check_time table_collation checksum:n "
    "create_options table_comment",
    "columns": "table_catalog table_schema table_name column_name ordinal_position:n "
    "column_default is_nullable data_type character_maximum_length:n character_octet_length:n "
    "numeric_precision:n numeric_scale:n datetime_precision:n character_set_name collation_name "
    "column_type column_key extra privileges column_comment generation_expression srs_id:n",
    "views": "table_catalog table_schema table_name view_definition check_option is_updatable "
    "definer security_type character_set_client collation_connection",
    "statistics": "table_catalog table_schema table_name non_unique:n index_schema index_name "
    "seq_in_index:n column_name collation cardinality:n sub_part:n packed nullable index_type "
    "comment index_comment is_visible expression",
    "key_column_usage": "constraint_catalog constraint_schema constraint_name table_catalog "
    "table_schema table_name column_name ordinal_position:n position_in_unique_constraint:n "
    "referenced_table_schema referenced_table_name referenced_column_name",
    "table_constraints": "constraint_catalog constraint_schema constraint_name table_schema "
    "table_name constraint_type enforced",
    "referential_constraints": "constraint_catalog constraint_schema constraint_name "
    "unique_constraint_catalog unique_constraint_schema unique_constraint_name match_option "
    "update_rule delete_rule table_name referenced_table_name",
    "check_constraints": "constraint_catalog constraint_schema constraint_name check_clause",
    "engines": "engine support comment transactions xa savepoints",
    "character_sets": "character_set_name default_collate_name description maxlen:n",
    "collations": "collation_name character_set_name id:n is_default is_compiled sortlen:n "
    "pad_attribute",
    "routines": "specific_name routine_catalog routine_schema routine_name routine_type "
    "data_type routine_definition routine_comment definer created last_altered",
    "parameters": "specific_catalog specific_schema specific_name ordinal_position:n "
    "parameter_mode parameter_name data_type dtd_identifier routine_type",
    "triggers": "trigger_catalog trigger_schema trigger_name event_manipulation "
    "event_object_schema event_object_table action_statement action_timing definer",
    "events": "event_catalog event_schema event_name definer event_definition status",
    "partitions": "table_catalog table_schema table_name partition_name subpartition_name "
    "partition_ordinal_position:n partition_method partition_expression table_rows:n",
    "processlist": "id:n user host db command time:n state info",
    "user_privileges": "grantee table_catalog privilege_type is_grantable",
    "schema_privileges": "grantee table_catalog table_schema privilege_type is_grantable",
    "table_privileges": "grantee table_catalog table_schema table_name privilege_type is_grantable",
    "column_privileges": "grantee table_catalog table_schema table_name column_name "
    "privilege_type is_grantable",
    "plugins": "plugin_name plugin_version plugin_status plugin_type",
}


class Information:
    """The tables of information_schema over one database, made when they are asked for."""

    def __init__(self, db: Database):
        self._db = db

    def table(self, schema: str, name: str) -> pl.DataFrame:
        """A table of the server; Fault 1146 if there is none of this name."""
        if schema != "information_schema" or name not in _COLUMNS:
            raise Fault(1146, "42S02", f"Table '{schema}.{name}' doesn't exist")
        columns = {
            part.removesuffix(":n"): pl.Int64() if part.endswith(":n") else pl.String()
            for part in _COLUMNS[name].split()
        }
        make = _ROWS.get(name)
        rows = []
        for row in () if make is None else make(self):
            hold(_ROW_BYTES, f"{schema}.{name}")
            rows.append(_filled(row, columns))
        upper = {column.upper(): type for column, type in columns.items()}
        return pl.DataFrame(rows, schema=upper, orient="row")

    def relations(self) -> list[tuple[str, bool]]:
        """The names of tables and views, and which are views."""
        plan = self._db.catalog.current()
        return sorted([(name, False) for name in plan.tables] + [(n, True) for n in plan.views])

    def columns(self, name: str) -> tuple[Declared, ...]:
        """The columns of a table or view."""
        relation = self._db.catalog.resolve(name.lower())
        if relation is None:
            raise Fault(1146, "42S02", f"Table '{DATABASE_NAME}.{name}' doesn't exist")
        return declared_of(self._db.store, relation)

    def key(self, name: str) -> tuple[str, ...]:
        """The primary key of a table; a view has none that a client could count on."""
        relation = self._db.catalog.resolve(name.lower())
        return relation.schema.key if isinstance(relation, Source) else ()

    def view_sql(self, name: str) -> str | None:
        """The query of a view."""
        view = self._db.catalog.current().views.get(name.lower())
        return None if view is None else view.sql

    # -- rows of the tables --------------------------------------------------------------------

    def _schemata(self) -> Iterator[dict[str, Any]]:
        for name in SCHEMAS:
            yield {
                "catalog_name": "def",
                "schema_name": name,
                "default_character_set_name": CHARSET,
                "default_collation_name": COLLATION,
                "default_encryption": "NO",
            }

    def _tables(self) -> Iterator[dict[str, Any]]:
        for name, is_view in self.relations():
            row = {"table_catalog": "def", "table_schema": DATABASE_NAME, "table_name": name}
            if is_view:
                yield row | {"table_type": "VIEW", "table_comment": "VIEW"}
            else:
                yield row | {
                    "table_type": "BASE TABLE",
                    "engine": ENGINE,
                    "version": 10,
                    "row_format": "Dynamic",
                    "table_collation": COLLATION,
                    "create_options": "",
                    "table_comment": "",
                }
        for name in _COLUMNS:
            yield {
                "table_catalog": "def",
                "table_schema": "information_schema",
                "table_name": name.upper(),
                "table_type": "SYSTEM VIEW",
                "table_comment": "",
            }

    def _columns(self) -> Iterator[dict[str, Any]]:
        for name, _ in self.relations():
            key = self.key(name)
            for place, column in enumerate(self.columns(name), 1):
                yield {
                    "table_catalog": "def",
                    "table_schema": DATABASE_NAME,
                    "table_name": name,
                    "column_name": column.name,
                    "ordinal_position": place,
                    "column_default": column.default,
                    "is_nullable": "YES" if column.nullable else "NO",
                    "column_type": column.type,
                    "column_key": "PRI" if column.name in key else "",
                    "extra": extra_of(column),
                    "privileges": "select,insert,update,references",
                    "column_comment": "",
                    "generation_expression": "",
                    **_details(column),
                }

    def _views(self) -> Iterator[dict[str, Any]]:
        for name, is_view in self.relations():
            if is_view:
                yield {
                    "table_catalog": "def",
                    "table_schema": DATABASE_NAME,
                    "table_name": name,
                    "view_definition": self.view_sql(name),
                    "check_option": "NONE",
                    "is_updatable": "NO",
                    "definer": "",
                    "security_type": "DEFINER",
                    "character_set_client": CHARSET,
                    "collation_connection": COLLATION,
                }

    def _statistics(self) -> Iterator[dict[str, Any]]:
        for name, _ in self.relations():
            for place, column in enumerate(self.key(name), 1):
                yield {
                    "table_catalog": "def",
                    "table_schema": DATABASE_NAME,
                    "table_name": name,
                    "non_unique": 0,
                    "index_schema": DATABASE_NAME,
                    "index_name": "PRIMARY",
                    "seq_in_index": place,
                    "column_name": column,
                    "collation": "A",
                    "nullable": "",
                    "index_type": "BTREE",
                    "comment": "",
                    "index_comment": "",
                    "is_visible": "YES",
                }

    def _key_column_usage(self) -> Iterator[dict[str, Any]]:
        for name, _ in self.relations():
            for place, column in enumerate(self.key(name), 1):
                yield _CONSTRAINT | {
                    "table_catalog": "def",
                    "table_name": name,
                    "column_name": column,
                    "ordinal_position": place,
                }

    def _table_constraints(self) -> Iterator[dict[str, Any]]:
        for name, is_view in self.relations():
            if not is_view:
                row = {"table_name": name, "constraint_type": "PRIMARY KEY", "enforced": "YES"}
                yield _CONSTRAINT | row

    def _engines(self) -> Iterator[dict[str, Any]]:
        comment = "viewkeep, shown as the engine without transactions"
        no = dict.fromkeys(("transactions", "xa", "savepoints"), "NO")
        yield {"engine": ENGINE, "support": "DEFAULT", "comment": comment, **no}

    def _character_sets(self) -> Iterator[dict[str, Any]]:
        yield {
            "character_set_name": CHARSET,
            "default_collate_name": COLLATION,
            "description": "UTF-8 Unicode",
            "maxlen": 4,
        }

    def _collations(self) -> Iterator[dict[str, Any]]:
        yield {
            "collation_name": COLLATION,
            "character_set_name": CHARSET,
            "id": 46,
            "is_default": "Yes",
            "is_compiled": "Yes",
            "sortlen": 1,
            "pad_attribute": "NO PAD",
        }


_ROWS: dict[str, Callable[[Information], Iterator[dict[str, Any]]]] = {
    "schemata": Information._schemata,
    "tables": Information._tables,
    "columns": Information._columns,
    "views": Information._views,
    "statistics": Information._statistics,
    "key_column_usage": Information._key_column_usage,
    "table_constraints": Information._table_constraints,
    "engines": Information._engines,
    "character_sets": Information._character_sets,
    "collations": Information._collations,
}
_CONSTRAINT = {
    "constraint_catalog": "def",
    "constraint_schema": DATABASE_NAME,
    "constraint_name": "PRIMARY",
    "table_schema": DATABASE_NAME,
}


def extra_of(column: Declared) -> str:
    """The Extra of a column."""
    if column.automatic:
        return "auto_increment"
    return "DEFAULT_GENERATED" if column.default == "CURRENT_TIMESTAMP" else ""


def _filled(row: dict[str, Any], columns: Iterable[str]) -> list[Any]:
    return [row.get(column) for column in columns]


def _details(column: Declared) -> dict[str, Any]:
    """The parts of a column's type."""
    base = re.split(r"[( ]", column.type)[0]
    found: dict[str, Any] = {"data_type": base}
    sizes = _SIZES.search(column.type)
    if base in ("varchar", "char", "varbinary") and sizes is not None:
        length: int | None = int(sizes[1])
    else:
        length = _TEXT_LENGTHS.get(base)
    if length is not None:
        binary = "blob" in base or base == "varbinary"
        octets = length if binary or base in _TEXT_LENGTHS else 4 * length
        found |= {"character_maximum_length": length, "character_octet_length": octets}
        if not binary:
            found |= {"character_set_name": CHARSET, "collation_name": COLLATION}
    if base == "decimal" and sizes is not None:
        found |= {"numeric_precision": int(sizes[1]), "numeric_scale": int(sizes[2])}
    elif base in _DIGITS:
        found |= {"numeric_precision": _DIGITS[base]}
        if base != "double":
            found |= {"numeric_scale": 0}
    if base == "datetime":
        found |= {"datetime_precision": 6}
    return found
