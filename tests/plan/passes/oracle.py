"""Plans as DuckDB SQL: an evaluation that shares nothing with ours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import duckdb

from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    KeyPart,
    Match,
    Node,
    Project,
    Source,
    Threshold,
    TopK,
    Union,
    Values,
    Window,
    sources,
)

Rows = list[tuple[Any, ...]]
_INFIX = {
    "eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "AND", "or": "OR",
    "null_safe_eq": "IS NOT DISTINCT FROM", "add": "+", "subtract": "-", "multiply": "*",
    "divide": "/", "remainder": "%",
}  # fmt: skip


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One connection for all examples."""
    made = duckdb.connect()
    made.execute("SET threads = 1")
    return made


def rows_of(node: Node, tables: Mapping[str, Rows], columns: list[str]) -> Counter[Any]:
    """The rows of a plan over tables, as a multiset; its row key is unique, or this fails."""
    database = connection()
    for source in {source.table: source for source in sources(node)}.values():
        kinds = ", ".join(f"{_name(c.name)} {c.type}" for c in source.columns)
        database.execute(f"CREATE OR REPLACE TEMP TABLE {source.table} ({kinds})")
        if rows := tables[source.table]:
            marks = ", ".join("?" for _ in source.columns)
            database.executemany(f"INSERT INTO {source.table} VALUES ({marks})", rows)
    text = _sql(node)
    keys = ", ".join(_name(name) for name in node.row_key) or "()"
    worst = database.execute(
        f"SELECT max(n) FROM (SELECT count(*) AS n FROM ({text}) GROUP BY {keys})"
    ).fetchall()
    assert worst in ([(None,)], [(0,)], [(1,)]), f"row key {node.row_key} is not unique"
    shown = ", ".join(map(_name, columns)) or "1"
    return Counter(database.execute(f"SELECT {shown} FROM ({text})").fetchall())


def _sql(node: Node) -> str:
    below = [f"({_sql(one)})" for one in node.inputs]
    match node:
        case Source():
            return f"SELECT * FROM {node.table}"
        case Values():
            names = ", ".join(_name(column.name) for column in node.columns)
            rows = [
                [_expr(Lit(value, c.type)) for value, c in zip(row, node.columns, strict=True)]
                for row in node.rows
            ]
            texts = ", ".join(f"({', '.join(row)})" for row in rows)
            return f"SELECT * FROM (VALUES {texts}) AS v({names})"
        case Filter():
            return f"SELECT * FROM {below[0]} WHERE {_expr(node.predicate)}"
        case Project():
            outputs = ", ".join(f"{_expr(out.expr)} AS {_name(out.name)}" for out in node.outputs)
            return f"SELECT {outputs} FROM {below[0]}"
        case Union():
            return " UNION ALL ".join(f"SELECT * FROM {one}" for one in below)
        case Join():
            return _join(node, below)
        case Threshold():
            on = " AND ".join([*map(_match, node.on), _expr(node.predicate)])
            names = ", ".join(_name(column.name) for column in node.columns)
            return f"SELECT {names} FROM {below[0]} AS l JOIN {below[1]} AS r ON {on}"
        case Aggregate():
            outputs = [f"{_expr(key.expr)} AS {_name(key.name)}" for key in node.keys]
            outputs += [f"{_call(call)} AS {_name(call.name)}" for call in node.aggregates]
            by = f" GROUP BY {', '.join(_expr(k.expr) for k in node.keys)}" if node.keys else ""
            return f"SELECT {', '.join(outputs)} FROM {below[0]}{by}"
        case TopK():
            last = "" if node.limit is None else f" AND place <= {node.offset + node.limit}"
            place = f"row_number() OVER ({_window(node)}) AS place"
            inner = f"(SELECT *, {place} FROM {below[0]})"
            return f"SELECT * EXCLUDE (place) FROM {inner} WHERE place > {node.offset}{last}"
        case Window():
            calls = [
                f"{call.function}({', '.join(map(_expr, call.arguments))})"
                f" OVER ({_window(node)}) AS {_name(call.name)}"
                for call in node.calls
            ]
            return f"SELECT *, {', '.join(calls)} FROM {below[0]}"
    raise NotImplementedError(type(node))


def _join(node: Join, below: list[str]) -> str:
    on = " AND ".join(map(_match, node.on)) or "TRUE"
    if node.shows_right:
        return f"SELECT * FROM {below[0]} AS l {node.kind} JOIN {below[1]} AS r ON {on}"
    negation = "NOT " if node.kind == "anti" else ""
    exists = f"EXISTS (SELECT 1 FROM {below[1]} AS r WHERE {on})"
    return f"SELECT * FROM {below[0]} AS l WHERE {negation}{exists}"


def _match(match: Match) -> str:
    sign = "IS NOT DISTINCT FROM" if match.null_safe else "="
    return f"({_expr(match.left, 'l.')} {sign} {_expr(match.right, 'r.')})"


def _window(node: TopK | Window) -> str:
    order = [*node.order, *(KeyPart(name) for name in node.row_key)]
    parts = [
        f"{_name(part.name)} {'DESC NULLS LAST' if part.descending else 'ASC NULLS FIRST'}"
        for part in order
    ]
    partition = ", ".join(map(_name, node.partition))
    return (f"PARTITION BY {partition} " if partition else "") + (
        f"ORDER BY {', '.join(parts)}" if parts else ""
    )


def _call(call: AggregateCall) -> str:
    if call.argument is None:
        return "count(*)"
    function, _, distinct = call.function.partition("_")
    inside = f"{function}({'DISTINCT ' if distinct else ''}{_expr(call.argument)})"
    return f"CAST({inside} AS {call.type})"


def _expr(expr: Expr, side: str = "") -> str:
    if isinstance(expr, Ref):
        return side + _name(expr.name)
    if isinstance(expr, Lit):
        value = "NULL" if expr.value is None else repr(expr.value)
        return f"CAST({value} AS {expr.type})"
    args = [_expr(arg, side) for arg in expr.args]
    return f"({_function(expr, args)})"


def _function(expr: Call, args: list[str]) -> str:
    if expr.function in _INFIX:
        return f" {_INFIX[expr.function]} ".join(args)
    match expr.function:
        case "not":
            return f"NOT {args[0]}"
        case "is_null" | "is_not_null":
            return f"{args[0]} {expr.function.replace('_', ' ').upper()}"
        case "in":
            return f"{args[0]} IN ({', '.join(args[1:])})"
        case "cast":
            return f"CAST({args[0]} AS {expr.type})"
        case "coalesce":
            return f"coalesce({', '.join(args)})"
        case "case":
            pairs = zip(args[:-1:2], args[1::2], strict=True)
            whens = " ".join(f"WHEN {when} THEN {then}" for when, then in pairs)
            return f"CASE {whens} ELSE {args[-1]} END"
    raise NotImplementedError(expr.function)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
