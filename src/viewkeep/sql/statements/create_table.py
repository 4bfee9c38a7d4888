"""CREATE TABLE: columns with their types and defaults, and a primary key, which every table has."""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.expr import Expr, Scalar
from viewkeep.sql.expressions.scalars import lower
from viewkeep.sql.expressions.stored_values import stored_value
from viewkeep.sql.expressions.type_names import type_of
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import Column, Schema

_REASONS: dict[type, str] = {
    exp.NotNullColumnConstraint: "only key columns are NOT NULL: a put may set some columns only",
    exp.UniqueColumnConstraint: "only the primary key is unique",
    exp.CommentColumnConstraint: "comments are not kept",
}
# Plans name columns by the text of what they compute, which these would make ambiguous.
_RESERVED = set("()[]{},:;'#`\"\n\t\r\0")


def schema_of(tree: exp.Create) -> tuple[Schema, tuple[tuple[str, Scalar], ...]]:
    """The schema that a CREATE TABLE declares, and the defaults of columns."""
    if not isinstance(tree.this, exp.Schema):
        raise Unsupported("CREATE TABLE needs columns", fragment=text_of(tree))
    columns: list[Column] = []
    inline: list[str] = []
    declared: list[str] | None = None
    defaults: list[tuple[str, Scalar]] = []
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            column, default, is_key = column_of(part)
            columns.append(column)
            if is_key:
                inline.append(column.name)
            if default is not None:
                defaults.append((column.name, default))
        elif isinstance(part, exp.PrimaryKey):
            included = part.args.get("include")
            if included is not None and any(included.args.values()):
                raise Unsupported("a PRIMARY KEY is columns", fragment=text_of(part))
            if declared is not None:
                raise Unsupported("a table needs one PRIMARY KEY", fragment=text_of(part))
            declared = [column.name.lower() for column in part.expressions]
        else:
            raise Unsupported("this constraint is not taken", fragment=text_of(part))
    key = _key(tree, columns, inline, declared)
    for column in columns:
        if not column.nullable and column.name not in key:
            raise Unsupported(_REASONS[exp.NotNullColumnConstraint], fragment=text_of(tree.this))
    if on_key := [name for name, _ in defaults if name in key]:
        raise Unsupported(f"key column {on_key[0]} has no DEFAULT", fragment=text_of(tree.this))
    schema = Schema(tuple(Column(c.name, c.type, c.name not in key) for c in columns), key)
    return schema, tuple(defaults)


def column_of(tree: exp.ColumnDef) -> tuple[Column, Scalar, bool]:
    """A column that is declared, its default, and whether it is declared the key.

    It is not nullable if it is declared NOT NULL.
    """
    name = tree.name.lower()
    if _RESERVED & set(name) or not name.strip():
        raise Unsupported(
            f"a column cannot be called {name}",
            fragment=text_of(tree),
            hint="Use letters, digits, spaces and _ . - $",
        )
    if tree.args.get("kind") is None:
        raise Unsupported(f"column {name} has no type", fragment=text_of(tree))
    column, is_key, demanded = Column(name, type_of(tree.args["kind"])), False, False
    default: Scalar = None
    for constraint in tree.args.get("constraints") or ():
        kind = constraint.kind
        if isinstance(kind, exp.PrimaryKeyColumnConstraint):
            is_key = True
        elif isinstance(kind, exp.NotNullColumnConstraint):
            demanded |= not kind.args.get("allow_null")
        elif isinstance(kind, exp.DefaultColumnConstraint):
            default = default_of(kind.this, column)
        else:
            raise _refused(constraint)
    return Column(name, column.type, not demanded), default, is_key


def default_of(tree: exp.Expr, column: Column) -> Scalar:
    """A DEFAULT: a constant of its column."""

    def leaf(inner: exp.Expr) -> Expr | None:
        if isinstance(inner, exp.Column):
            raise Unsupported("a DEFAULT is a constant", fragment=text_of(tree))
        return None

    return stored_value(lower(tree, leaf), column, text_of(tree))


def options_of(tree: exp.Create) -> tuple[tuple[str, str], ...]:
    """What USING and OPTIONS say; USING is the option `using`."""
    found: dict[str, str] = {}
    for part in tree.args.get("properties") or ():
        if isinstance(part, exp.FileFormatProperty):
            found["using"] = part.name.lower()
        elif isinstance(part, exp.OptionsProperty):
            for item in part.expressions:
                name, value = item.this.name.lower(), item.args.get("value")
                if not isinstance(value, exp.Literal) or name in found or name == "using":
                    raise Unsupported("an option is a name and a text", fragment=text_of(item))
                found[name] = value.this
        else:
            raise Unsupported("this property is not supported", fragment=text_of(part))
    if found and found.get("using") != "hbase":
        raise Unsupported(
            "a table is created with USING hbase, or without USING", fragment=text_of(tree)
        )
    return tuple(sorted(found.items()))


def _key(
    tree: exp.Create, columns: list[Column], inline: list[str], declared: list[str] | None
) -> tuple[str, ...]:
    key = tuple(declared if declared is not None else inline)
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise Unsupported(f"two columns are called {name}", fragment=text_of(tree.this))
    if not key or (declared is None and len(inline) > 1) or (declared is not None and inline):
        raise Unsupported(
            "a table needs one PRIMARY KEY",
            fragment=text_of(tree.this),
            hint="Write PRIMARY KEY after a column, or PRIMARY KEY (a, b) after the last",
        )
    if unknown := [name for name in key if name not in names]:
        raise Unsupported(f"key column {unknown[0]} is not a column", fragment=text_of(tree.this))
    if len(set(key)) != len(key):
        raise Unsupported("a key column is named twice", fragment=text_of(tree.this))
    return key


def _refused(constraint: exp.ColumnConstraint) -> Unsupported:
    reason = _REASONS.get(type(constraint.kind), "this constraint is not taken")
    return Unsupported(reason, fragment=text_of(constraint))
