"""CREATE TABLE: columns with their types, and a primary key, which every table has."""

from __future__ import annotations

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.sql.expressions.type_names import type_of
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import Column, Schema

_REASONS: dict[type, str] = {
    exp.NotNullColumnConstraint: "only key columns are NOT NULL: a put may set some columns only",
    exp.DefaultColumnConstraint: "a column left out of a put keeps its value, so it has no DEFAULT",
    exp.UniqueColumnConstraint: "only the primary key is unique",
    exp.CommentColumnConstraint: "comments are not kept",
}
# Plans name columns by the text of what they compute, which these would make ambiguous.
_RESERVED = set("()[]{},:;'#`\"\n\t\r\0")


def schema_of(tree: exp.Create) -> Schema:
    """The schema that a CREATE TABLE declares."""
    if not isinstance(tree.this, exp.Schema):
        raise Unsupported("CREATE TABLE needs columns", fragment=text_of(tree))
    columns: list[Column] = []
    inline: list[str] = []
    declared: list[str] | None = None
    demanded: dict[str, exp.ColumnConstraint] = {}
    for part in tree.this.expressions:
        if isinstance(part, exp.ColumnDef):
            name = part.name.lower()
            if _RESERVED & set(name) or not name.strip():
                raise Unsupported(
                    f"a column cannot be called {name}",
                    fragment=text_of(part),
                    hint="Use letters, digits, spaces and _ . - $",
                )
            if part.args.get("kind") is None:
                raise Unsupported(f"column {name} has no type", fragment=text_of(part))
            columns.append(Column(name, type_of(part.args["kind"])))
            for constraint in part.args.get("constraints") or ():
                if isinstance(constraint.kind, exp.PrimaryKeyColumnConstraint):
                    inline.append(name)
                elif isinstance(constraint.kind, exp.NotNullColumnConstraint):
                    if not constraint.kind.args.get("allow_null"):
                        demanded[name] = constraint
                else:
                    raise _refused(constraint)
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
    for name, constraint in demanded.items():
        if name not in key:
            raise _refused(constraint)
    return Schema(tuple(Column(c.name, c.type, c.name not in key) for c in columns), key)


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
            raise Unsupported("this property is not taken", fragment=text_of(part))
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
