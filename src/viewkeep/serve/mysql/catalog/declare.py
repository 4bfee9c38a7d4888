"""CREATE TABLE as MySQL writes it: the table as viewkeep keeps it, and what was declared besides.

Law: every declared type is kept as one that has all its values, and clients are shown the declared
one. What viewkeep does not keep itself (NOT NULL of other columns than the key, DEFAULT, lengths,
AUTO_INCREMENT) is a record beside the table, under its number, and holds for what is written
through MySQL. What nobody would keep (UNIQUE, CHECK) is refused unless the session has said that it
may be left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

from sqlglot import exp

from viewkeep.access.definitions import defaults_of
from viewkeep.errors import Unsupported
from viewkeep.expr import Scalar
from viewkeep.plan.nodes import Source, View
from viewkeep.serve.mysql.faults import Fault, unsupported
from viewkeep.stores.contract import Store
from viewkeep.stores.contract.records import record_from
from viewkeep.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    DataType,
    decimal,
)

NOW = "CURRENT_TIMESTAMP"
_RECORD = "mysql/table/"
NEXT = "mysql/next/"  # the record of the next number for AUTO_INCREMENT

Warn = Callable[[str], None]


@dataclass(frozen=True)
class Declared:
    """A column as a client sees it."""

    name: str
    type: str  # as MySQL writes it, in lower case
    nullable: bool = True
    default: str | None = None  # the text of a constant, or CURRENT_TIMESTAMP
    automatic: bool = False  # AUTO_INCREMENT
    length: int | None = None  # most characters or bytes


@dataclass(frozen=True)
class Table:
    """A CREATE TABLE: the statement for viewkeep and the declared columns."""

    name: str
    sql: str
    columns: tuple[Declared, ...]
    if_not_exists: bool


_INTEGERS = {
    "TINYINT": (INT, "tinyint"),
    "SMALLINT": (INT, "smallint"),
    "MEDIUMINT": (INT, "mediumint"),
    "INT": (INT, "int"),
    "BIGINT": (BIGINT, "bigint"),
    "UTINYINT": (INT, "tinyint unsigned"),
    "USMALLINT": (INT, "smallint unsigned"),
    "UMEDIUMINT": (INT, "mediumint unsigned"),
    "UINT": (BIGINT, "int unsigned"),
    "UBIGINT": (decimal(20, 0), "bigint unsigned"),
    "YEAR": (INT, "int"),
}
_TEXTS = {"TINYTEXT": 255, "TEXT": 65_535, "MEDIUMTEXT": None, "LONGTEXT": None, "JSON": None}
_BLOBS = {"TINYBLOB": 255, "BLOB": 65_535, "MEDIUMBLOB": None, "LONGBLOB": None}
_TIMES = ("DATETIME", "TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ", "TIMESTAMPLTZ")
_PASSED_OVER = (
    exp.EngineProperty,
    exp.CharacterSetProperty,
    exp.CollateProperty,
    exp.AutoIncrementProperty,
    exp.SchemaCommentProperty,
    exp.RowFormatProperty,
)


def table_of(tree: exp.Create, ignore_constraints: bool, warn: Warn) -> Table:
    """What a CREATE TABLE of MySQL declares. `warn` hears what is left out."""
    _check_properties(tree)
    if not isinstance(tree.this, exp.Schema):
        raise unsupported("CREATE TABLE takes columns and a primary key")
    columns: list[tuple[Declared, DataType]] = []
    key: list[str] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            found = column_of(part, key, ignore_constraints, warn)
            columns.append(found)
        elif isinstance(part, exp.PrimaryKey):
            key += [_key_name(column) for column in part.expressions]
        elif not _says_unsigned(part, columns):
            constraint(part, ignore_constraints, warn)
    if not key:
        raise Fault(3750, "HY000", "a table needs a PRIMARY KEY here")
    declared = [replace(c, nullable=False) if c.name in key else c for c, _ in columns]
    _check_automatic(declared, key)
    name = tree.this.this.name.lower()
    parts = [f"{_quoted(c.name)} {type}" for c, type in columns]
    parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, key))})")
    exists = bool(tree.args.get("exists"))
    head = f"CREATE TABLE {'IF NOT EXISTS ' if exists else ''}{_quoted(name)}"
    return Table(name, f"{head} ({', '.join(parts)})", tuple(declared), exists)


def constraint(part: exp.Expr, ignore: bool, warn: Warn) -> None:
    """Leave out an index or a constraint of a table, or refuse it."""
    if isinstance(part, exp.Constraint):
        for inner in part.expressions:
            constraint(inner, ignore, warn)
        return
    text = part.sql("mysql")
    if isinstance(part, exp.IndexColumnConstraint):
        warn(f"there are no secondary indexes, a view keeps rows in another order: {text}")
    elif isinstance(part, exp.ForeignKey):
        warn(f"foreign keys are not enforced: {text}")
    elif isinstance(part, exp.UniqueColumnConstraint | exp.CheckColumnConstraint) and ignore:
        warn(f"not enforced: {text}")
    else:
        raise unsupported(
            f"only the primary key is unique, and there are no checks: {text}. Leave it out, or "
            "SET viewkeep_constraints = 'ignore' to have such clauses left out with a warning"
        )


def save(store: Store, number: int, columns: Iterable[Declared]) -> None:
    """Keep what was declared of the table with this number, which is new."""
    store.meta.cas(f"{_RECORD}{number}", None, _encoded(columns))


def saved(store: Store, number: int) -> tuple[Declared, ...]:
    """The columns of a table that were declared through MySQL."""
    record = store.meta.get(f"{_RECORD}{number}")
    columns = [] if record is None else json.loads(record)
    return tuple(record_from(Declared, column) for column in columns)


def save_again(
    store: Store, number: int, before: Iterable[Declared], after: Iterable[Declared]
) -> None:
    """Keep other columns than `before`; Fault if another client has changed them meanwhile."""
    old, new = _encoded(before), _encoded(after)
    key = f"{_RECORD}{number}"
    if old == new:
        return
    known = store.meta.get(key)
    if _encoded(saved(store, number)) != old or not store.meta.cas(key, known, new):
        raise Fault(1205, "HY000", "another client changed the table at the same time; try again")


def _encoded(columns: Iterable[Declared]) -> bytes:
    return json.dumps([asdict(column) for column in columns]).encode()


def forget(store: Store, number: int) -> None:
    """The table is gone, and so is what was declared of it."""
    for key in (f"{_RECORD}{number}", f"{NEXT}{number}"):
        record = store.meta.get(key)
        if record is not None:
            store.meta.cas(key, record, None)


def declared_of(store: Store, relation: Source | View) -> tuple[Declared, ...]:
    """The columns of a table or view as clients see them."""
    if isinstance(relation, Source):
        declared = {column.name: column for column in saved(store, relation.number)}
        # A column may have come, or got its name, by an ALTER TABLE elsewhere.
        return tuple(
            declared.get(c.name) or undeclared(relation, c.name) for c in relation.schema.columns
        )
    schema = relation.schema
    return tuple(shown(schema[name], name) for name in relation.visible)


def undeclared(table: Source, name: str) -> Declared:
    """A column of a table that was not declared through MySQL."""
    column = table.schema[name]
    return replace(shown(column), default=_constant(defaults_of(table).get(name)))


def _constant(value: Scalar) -> str | None:
    """A DEFAULT that was not declared through MySQL, as the text of a constant."""
    if isinstance(value, bool):
        return str(int(value))
    return None if value is None or isinstance(value, bytes) else str(value)


def shown(column: Column, name: str | None = None) -> Declared:
    """A column that was not declared through MySQL."""
    return Declared(name or column.name, mysql_type(column.type), column.nullable)


def mysql_type(type: DataType) -> str:
    """What MySQL calls a type of viewkeep."""
    if type.is_array:
        return "json"
    if type.is_decimal:
        return f"decimal({type.precision},{type.scale})"
    return _SHOWN[type.name]


_SHOWN = {
    "BOOLEAN": "tinyint(1)",
    "INT": "int",
    "BIGINT": "bigint",
    "DOUBLE": "double",
    "STRING": "longtext",
    "BINARY": "longblob",
    "DATE": "date",
    "TIMESTAMP": "datetime(6)",
}


def _check_properties(tree: exp.Create) -> None:
    if tree.args.get("expression") is not None or tree.args.get("replace"):
        raise unsupported("CREATE TABLE ... AS is not taken: create the table, then INSERT INTO it")
    for part in tree.args.get("properties") or ():
        if isinstance(part, exp.TemporaryProperty):
            raise unsupported("there are no temporary tables")
        if not isinstance(part, _PASSED_OVER):
            raise unsupported(f"this is not taken in CREATE TABLE: {part.sql('mysql')}")


def column_of(
    part: exp.ColumnDef, key: list[str], ignore: bool, warn: Warn
) -> tuple[Declared, DataType]:
    """A column as it is declared, and the type that it is kept as.

    `key` gets its name if it is declared the key.
    """
    name = part.name.lower()
    kind = part.args.get("kind")
    if not isinstance(kind, exp.DataType):
        raise unsupported(f"column {name} has no type")
    type, text, length = _type(kind)
    made = Declared(name, text, length=length)
    for given in part.args.get("constraints") or ():
        kind = given.kind
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            key.append(name)
        elif isinstance(kind, exp.NotNullColumnConstraint):
            made = replace(made, nullable=bool(kind.args.get("allow_null")))
        elif isinstance(kind, exp.AutoIncrementColumnConstraint):
            made = replace(made, automatic=True)
        elif isinstance(kind, exp.DefaultColumnConstraint):
            made = replace(made, default=default_of(kind.this, name))
        elif isinstance(kind, exp.CommentColumnConstraint | exp.CharacterSetColumnConstraint):
            continue
        elif isinstance(kind, exp.CollateColumnConstraint):
            if not kind.this.name.lower().endswith("_bin"):
                warn(f"text is compared byte by byte: {kind.sql('mysql')} is left out")
        elif isinstance(kind, exp.OnUpdateColumnConstraint):
            raise unsupported(f"ON UPDATE is not kept (column {name}): set the column yourself")
        elif isinstance(kind, exp.Reference):
            warn(f"foreign keys are not enforced: {kind.sql('mysql')}")
        elif not _says_unsigned(kind, [(made, type)]):
            constraint(kind, ignore, warn)
    return made, type


def _says_unsigned(part: exp.Expr, columns: list[tuple[Declared, DataType]]) -> bool:
    """Whether this is CHECK (a >= 0) of a column that is UNSIGNED anyway."""
    if isinstance(part, exp.Constraint) and len(part.expressions) == 1:
        part = part.expressions[0]
    if not isinstance(part, exp.CheckColumnConstraint):
        return False
    unsigned = {column.name for column, _ in columns if "unsigned" in column.type}
    return any(part.this == exp.condition(f"`{n}` >= 0", dialect="mysql") for n in unsigned)


def _type(kind: exp.DataType) -> tuple[DataType, str, int | None]:
    name = kind.this.name
    sizes = [int(size.name) for size in kind.expressions if size.name.isdecimal()]
    size = sizes[0] if sizes else None
    if name == "BOOLEAN" or (name == "TINYINT" and size == 1):
        return BOOLEAN, "tinyint(1)", None
    if name in _INTEGERS:
        return *_INTEGERS[name], None
    if name in ("FLOAT", "DOUBLE", "UDOUBLE"):
        return DOUBLE, "double", None
    if name in ("DECIMAL", "UDECIMAL"):
        precision, scale = size or 10, sizes[1] if len(sizes) > 1 else 0
        try:
            return decimal(precision, scale), f"decimal({precision},{scale})", None
        except ValueError as error:
            raise Fault(1426, "42000", str(error)) from error
    if name in ("VARCHAR", "CHAR", "NCHAR", "NVARCHAR"):
        length = size or 1
        return STRING, f"{'varchar' if 'VAR' in name else 'char'}({length})", length
    if name in _TEXTS:
        return STRING, "longtext" if name == "JSON" else name.lower(), _TEXTS[name]
    if name in ("BINARY", "VARBINARY"):
        length = size or 1
        return BINARY, f"varbinary({length})", length
    if name in _BLOBS:
        return BINARY, name.lower(), _BLOBS[name]
    if name == "DATE":
        return DATE, "date", None
    if name in _TIMES:
        return TIMESTAMP, "datetime(6)", None
    raise Unsupported(
        f"there is no column type {kind.sql('mysql')}",
        hint="There are BOOLEAN, INT, BIGINT, DOUBLE, DECIMAL, VARCHAR, TEXT, VARBINARY, DATE, "
        "DATETIME",
    )


def default_of(tree: exp.Expr, name: str) -> str | None:
    """The text of a DEFAULT."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Null):
        return None
    if isinstance(tree, exp.CurrentTimestamp):
        return NOW
    if isinstance(tree, exp.Boolean):
        return "1" if tree.this else "0"
    if isinstance(tree, exp.Literal):
        return str(tree.this)
    if isinstance(tree, exp.BitString):
        return str(int(str(tree.this), 2))
    if isinstance(tree, exp.Neg) and isinstance(tree.this, exp.Literal):
        return f"-{tree.this.this}"
    raise unsupported(f"the DEFAULT of {name} must be a constant or CURRENT_TIMESTAMP")


def _key_name(column: exp.Expr) -> str:
    inner = column.this if isinstance(column, exp.Ordered) else column
    if not isinstance(inner, exp.Identifier | exp.Column):
        raise unsupported(f"a PRIMARY KEY is of whole columns, not {column.sql('mysql')}")
    return inner.name.lower()


def _check_automatic(columns: list[Declared], key: list[str]) -> None:
    for column in columns:
        if column.automatic and (key != [column.name] or "int" not in column.type):
            raise Fault(
                1075, "42000", "AUTO_INCREMENT is for one integer column that is the primary key"
            )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
