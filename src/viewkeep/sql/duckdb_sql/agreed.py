"""The queries of which DuckDB means what Spark means; DuckDB is asked nothing else.

Law: a part of a query that is not listed here is refused, with the part. What is listed was
compared with Spark over awkward values (tests/sql/duckdb_sql/test_agreed.py): a result is the
same, or DuckDB gives an error where Spark wraps around. Kinds of values are known, since most
differences are of implicit casts: text is never compared, joined or mixed with anything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from viewkeep.sql.duckdb_sql.kinds import (
    AGGREGATES,
    ARRAYS,
    NULL,
    NUMBERS,
    SCALARS,
    TIMES,
    WINDOWS,
    Kind,
    common,
    kind_of,
)
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import DataType

_PARTS: dict[type[exp.Expr], str] = {
    exp.Select: "with_ expressions distinct from_ joins where group having qualify windows order "
    "limit offset",
    exp.Union: "this expression distinct with_ order limit offset",
    exp.Except: "this expression distinct with_ order limit offset",
    exp.Intersect: "this expression distinct with_ order limit offset",
    exp.With: "expressions recursive",
    exp.CTE: "this alias",
    exp.Subquery: "this alias joins",
    exp.Table: "this alias joins",
    exp.TableAlias: "this columns",
    exp.From: "this",
    exp.Join: "this side kind method on using",
    exp.Where: "this",
    exp.Having: "this",
    exp.Qualify: "this",
    exp.Group: "expressions",
    exp.Rollup: "expressions",
    exp.Cube: "expressions",
    exp.GroupingSets: "expressions",
    exp.Order: "expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Offset: "expression",
    exp.Distinct: "expressions",
    exp.Window: "this partition_by order spec alias over",
    exp.WindowSpec: "kind start start_side end end_side",
    exp.Alias: "this alias",
    exp.Star: "",
    exp.Identifier: "this quoted",
    exp.Tuple: "expressions",
}
_UNITS = re.compile("(week|day|hour|minute|second)s?", re.IGNORECASE)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?", re.ASCII)
_MOST = 2**63 - 1


class DiffersError(Exception):
    """A part of a query that DuckDB may mean otherwise, and why."""


def check(tree: exp.Expr, columns: Mapping[str, Sequence[tuple[str, DataType]]]) -> None:
    """Raise DiffersError if a query over relations of these columns may mean something else."""
    _Check(tree, columns).run()


class _Check:
    """One query: the kinds of its names, found first, then of all its expressions."""

    def __init__(self, tree: exp.Expr, columns: Mapping[str, Sequence[tuple[str, DataType]]]):
        self._tree, self._columns = tree, columns
        self._named: dict[str, set[Kind]] = {}
        self._done: set[int] = set()
        for shown in columns.values():
            for name, type_ in shown:
                self._named.setdefault(name, set()).add(kind_of(type_))

    def run(self) -> None:
        for node in self._tree.walk():
            self._structure(node)
        self._name_aliases()
        for node in self._tree.walk():
            value = type(node) not in _PARTS or isinstance(node, exp.Subquery | exp.Window)
            if value and id(node) not in self._done and not self._is_part(node):
                self._kind(node)
        for node in self._tree.walk():
            self._clause(node)

    # -- names -----------------------------------------------------------------------------------

    def _name_aliases(self) -> None:
        """The kinds of the names that the query gives, until there are no more."""
        given = [node for node in self._tree.find_all(exp.Alias) if isinstance(node.alias, str)]
        for table in self._tree.find_all(exp.TableAlias):
            self._rename(table)
        left = given
        while left:
            waiting = []
            for node in left:
                try:
                    kind = self._kind(node.this)
                except _UnnamedError:
                    waiting.append(node)
                else:
                    self._named.setdefault(node.alias.lower(), set()).add(kind)
            if len(waiting) == len(left):
                break  # an unknown name: it is blamed where it stands
            left = waiting
        self._done.clear()

    def _rename(self, alias: exp.TableAlias) -> None:
        if not alias.columns:
            return
        shown = self._columns.get(alias.parent.name.lower()) if alias.parent else None
        if not isinstance(alias.parent, exp.Table) or shown is None:
            raise _differs(alias, "names for the columns of a query")
        for column, (_, type_) in zip(alias.columns, shown, strict=False):
            self._named.setdefault(column.name.lower(), set()).add(kind_of(type_))

    # -- clauses ---------------------------------------------------------------------------------

    def _structure(self, node: exp.Expr) -> None:
        """Refuse a clause, or a part of one, that is not listed."""
        parts = _PARTS.get(type(node))
        if parts is None:
            return
        for name, value in node.args.items():
            if value and name not in parts.split():
                raise _differs(node, name.rstrip("_").replace("_", " ").upper())
        if isinstance(node, exp.Join) and node.kind not in ("", "INNER", "OUTER", "CROSS"):
            raise _differs(node, f"{node.kind} JOIN")
        if isinstance(node, exp.Tuple) and not isinstance(node.parent, exp.GroupingSets):
            raise _differs(node, "a row of values")
        if isinstance(node, exp.WindowSpec) and node.args.get("kind") not in ("ROWS", "RANGE"):
            raise _differs(node, f"{node.args.get('kind')} frames")
        if isinstance(node, exp.Select):
            self._shadowed(node)

    def _shadowed(self, select: exp.Select) -> None:
        """Refuse a name that may be a column or an item of SELECT: each engine has its order."""
        shadows = {
            item.alias.lower()
            for item in select.expressions
            if isinstance(item, exp.Alias)
            and item.alias.lower() in self._named
            and not (isinstance(item.this, exp.Column) and item.this.name.lower() == item.alias)
        }
        clauses = ("expressions", "where", "group", "having", "qualify", "order")
        for clause in clauses if shadows else ():
            value = select.args.get(clause) or []
            for tree in value if isinstance(value, list) else [value]:
                for column in tree.find_all(exp.Column):
                    own = (
                        isinstance(column.parent, exp.Alias) and column.name == column.parent.alias
                    )
                    if not column.table and column.name.lower() in shadows and not own:
                        raise _differs(column, f"{column.name}, a column and an item of SELECT,")

    def _clause(self, node: exp.Expr) -> None:
        """Check the kinds of what stands in a clause."""
        if isinstance(node, exp.Where | exp.Having | exp.Qualify):
            self._boolean(node.this)
        elif isinstance(node, exp.Join) and node.args.get("on") is not None:
            self._boolean(node.args["on"])
        elif isinstance(node, exp.SetOperation):
            left, right = _items(node.this), _items(node.expression)
            if left is None or right is None or len(left) != len(right):
                raise _differs(node, "a set operation of * or of other columns")
            for pair in zip(left, right, strict=True):
                self._together(node, pair)
        elif isinstance(node, exp.Limit | exp.Offset):
            if not isinstance(node.expression, exp.Literal):
                raise _differs(node, "a count that is no constant")
        elif isinstance(node, exp.WindowSpec):
            self._frame(node)

    def _frame(self, spec: exp.WindowSpec) -> None:
        order = spec.parent.args.get("order") if spec.parent is not None else None
        parts: list[exp.Expr] = order.expressions if order is not None else []
        kinds = [self._kind(part.this) for part in parts]
        for side in ("start", "end"):
            bound = spec.args.get(side)
            if not isinstance(bound, exp.Expr):
                continue
            over = TIMES if isinstance(bound, exp.Interval) else NUMBERS
            by_rows = isinstance(bound, exp.Literal) and spec.args.get("kind") == "ROWS"
            if not by_rows and (len(kinds) != 1 or kinds[0] not in over):
                raise _differs(spec, "a frame of other values than its distance")
            if not isinstance(bound, exp.Literal | exp.Interval):
                raise _differs(spec, "a frame by an expression")

    def _is_part(self, node: exp.Expr) -> bool:
        """Whether a node is no value of its own: a name, or a type."""
        if isinstance(node, exp.DataType | exp.Var):
            return True
        if isinstance(node, exp.Subquery):
            return isinstance(node.parent, exp.From | exp.Join | exp.CTE | exp.SetOperation)
        return isinstance(node, exp.Window) and isinstance(node.this, exp.Identifier)

    # -- values ----------------------------------------------------------------------------------

    def _kind(self, node: exp.Expr) -> Kind:
        rule = _RULES.get(type(node))
        if rule is None:
            raise _differs(node)
        kind = rule(self, node)
        self._done.add(id(node))
        return kind

    def _together(self, node: exp.Expr, parts: Sequence[exp.Expr]) -> Kind:
        kinds = [self._kind(part) for part in parts]
        kind = common(kinds)
        if kind is None:
            raise _differs(node, f"{' with '.join(dict.fromkeys(kinds))}")
        return kind

    def _boolean(self, node: exp.Expr) -> Kind:
        if self._kind(node) not in ("boolean", NULL):
            raise _differs(node, "a condition that is no BOOLEAN")
        return "boolean"

    def _column(self, node: exp.Column) -> Kind:
        if isinstance(node.this, exp.Star):
            return "star"
        if node.args.get("db") is not None:
            raise _differs(node)
        kinds = self._named.get(node.name.lower())
        if kinds is None:
            raise _UnnamedError(f"there is no column {node.name}")
        if len(kinds) > 1:
            raise _differs(node, f"the name {node.name} of values of several kinds")
        return next(iter(kinds))

    def _literal(self, node: exp.Literal) -> Kind:
        if node.is_string:
            return "string"
        if node.name.isdecimal():
            if int(node.name) > _MOST:
                raise _differs(node)
            return "integer"
        return "double" if "e" in node.name.lower() else "decimal"

    def _logic(self, node: exp.Expr) -> Kind:
        left = [node]  # long chains are no matter of the stack
        while left:
            part = left.pop()
            if isinstance(part, exp.And | exp.Or | exp.Not):
                self._done.add(id(part))
                left += part.iter_expressions()
            else:
                self._boolean(part)
        return "boolean"

    def _comparison(self, node: exp.Binary) -> Kind:
        self._together(node, [node.this, node.expression])
        return "boolean"

    def _between(self, node: exp.Between) -> Kind:
        if node.args.get("symmetric"):
            raise _differs(node)
        self._together(node, [node.this, node.args["low"], node.args["high"]])
        return "boolean"

    def _in(self, node: exp.In) -> Kind:
        query = node.args.get("query")
        if query is None:
            self._together(node, [node.this, *node.expressions])
            return "boolean"
        self._together(node, [node.this, query])
        return "boolean"

    def _is(self, node: exp.Is) -> Kind:
        if isinstance(node.expression, exp.Boolean):
            return self._boolean(node.this)
        if not isinstance(node.expression, exp.Null):
            raise _differs(node)
        self._kind(node.this)
        return "boolean"

    def _case(self, node: exp.Case) -> Kind:
        ifs = node.args["ifs"]
        if node.this is not None:
            self._together(node, [node.this, *(branch.this for branch in ifs)])
        else:
            for branch in ifs:
                self._boolean(branch.this)
        for branch in ifs:
            self._done.add(id(branch))
        default = node.args.get("default")
        values = [branch.args["true"] for branch in ifs]
        return self._together(node, values if default is None else [*values, default])

    def _if(self, node: exp.If) -> Kind:
        if isinstance(node.parent, exp.Case):
            return NULL  # a branch, of which CASE sees the parts
        self._boolean(node.this)
        false = node.args.get("false")
        true = node.args["true"]
        return self._together(node, [true] if false is None else [true, false])

    def _arithmetic(self, node: exp.Binary) -> Kind:
        kinds = [self._kind(node.this), self._kind(node.expression)]
        if kinds == ["timestamp", "interval"] and not isinstance(node, exp.Mul):
            return "timestamp"
        kind = common(kinds)
        if kind not in (*NUMBERS, NULL):
            raise _differs(node, f"{kinds[0]} with {kinds[1]}")
        return kind

    def _quotient(self, node: exp.Binary) -> Kind:
        kind = self._arithmetic(node)
        allowed = ("integer",) if isinstance(node, exp.Mod) else ("integer", "double")
        if kind not in allowed:
            raise _differs(node, f"{kind} values in {text_of(node)}")
        return "integer" if isinstance(node, exp.Mod) else "double"

    def _negative(self, node: exp.Neg) -> Kind:
        kind = self._kind(node.this)
        if kind not in (*NUMBERS, NULL):
            raise _differs(node)
        return kind

    def _concatenated(self, node: exp.DPipe) -> Kind:
        if {self._kind(node.this), self._kind(node.expression)} - {"string", NULL}:
            raise _differs(node, "|| of other values than text")
        return "string"

    def _like(self, node: exp.Like) -> Kind:
        pattern = node.expression
        literal = isinstance(pattern, exp.Literal) and pattern.is_string
        if self._kind(node.this) not in ("string", NULL) or not literal or "\\" in pattern.name:
            raise _differs(node, "LIKE but of text with a constant pattern without escapes")
        self._kind(pattern)
        return "boolean"

    def _cast(self, node: exp.Cast) -> Kind:
        given, target = self._kind(node.this), node.to.sql("spark").upper()
        literal = node.this.name if isinstance(node.this, exp.Literal) else ""
        integers = ("TINYINT", "SMALLINT", "INT", "BIGINT")
        if target in integers and given in ("integer", NULL):
            return "integer"
        if target == "DOUBLE" and given in (*NUMBERS, NULL):
            return "double"
        if target == "STRING" and given in ("integer", "string", "date", NULL):
            return "string"
        if target == "BOOLEAN" and given in ("boolean", NULL):
            return "boolean"
        if target == "DATE" and (given in (*TIMES, NULL) or _DAY.fullmatch(literal)):
            return "date"
        instant = _DAY.fullmatch(literal) or _INSTANT.fullmatch(literal)
        if target == "TIMESTAMP" and (given in (*TIMES, NULL) or instant):
            return "timestamp"
        raise _differs(node, f"a cast of {given} to {target}")

    def _interval(self, node: exp.Interval) -> Kind:
        unit, value = node.args.get("unit"), node.this
        fits = isinstance(unit, exp.Var) and _UNITS.fullmatch(unit.name)
        if not fits or not isinstance(value, exp.Literal) or not value.name.isdecimal():
            raise _differs(node, "an interval that is no constant of weeks to seconds")
        self._kind(value)
        return "interval"

    def _query(self, node: exp.Expr) -> Kind:
        items = _items(node)
        if items is None or len(items) != 1:
            raise _differs(node, "a subquery of several columns")
        return self._kind(items[0])

    def _exists(self, node: exp.Exists) -> Kind:
        return "boolean"

    def _function(self, node: exp.Anonymous) -> Kind:
        name = node.name.lower()
        rules = WINDOWS if self._is_windowed(node) else {**SCALARS, **AGGREGATES}
        arguments: list[exp.Expr] = list(node.expressions)
        if arguments and isinstance(arguments[0], exp.Distinct):
            if name not in ("count", "sum", "avg", "min", "max") or len(arguments) > 1:
                raise _differs(node, f"DISTINCT in {name}")
            arguments = list(arguments[0].expressions)
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return "integer"
        kinds = [self._kind(argument) for argument in arguments]
        if name in ARRAYS and len(kinds) == 1 and not self._is_windowed(node):
            return "array"
        kind = rules[name](kinds) if name in rules else None
        if kind is None:
            words = f"{name}({', '.join(kinds)})" if name in rules else name
            raise _differs(node, words)
        return kind

    def _is_windowed(self, node: exp.Expr) -> bool:
        parent = node.parent
        while isinstance(parent, exp.Filter):
            node, parent = parent, parent.parent
        return isinstance(parent, exp.Window) and parent.this is node

    def _filtered(self, node: exp.Filter) -> Kind:
        if not isinstance(node.this, exp.Anonymous) or node.this.name.lower() in ARRAYS:
            raise _differs(node)
        return self._kind(node.this)

    def _window(self, node: exp.Window) -> Kind:
        if not isinstance(node.this, exp.Anonymous | exp.Filter):
            raise _differs(node)
        return self._kind(node.this)


_RULES: dict[type[exp.Expr], Callable[..., Kind]] = {
    exp.Column: _Check._column,
    exp.Star: lambda check, node: "star",
    exp.Literal: _Check._literal,
    exp.Null: lambda check, node: NULL,
    exp.Boolean: lambda check, node: "boolean",
    exp.Alias: lambda check, node: check._kind(node.this),
    exp.Paren: lambda check, node: check._kind(node.this),
    exp.And: _Check._logic,
    exp.Or: _Check._logic,
    exp.Not: _Check._logic,
    **dict.fromkeys(
        (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ),
        _Check._comparison,
    ),
    exp.Between: _Check._between,
    exp.In: _Check._in,
    exp.Is: _Check._is,
    exp.Case: _Check._case,
    exp.If: _Check._if,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul), _Check._arithmetic),
    **dict.fromkeys((exp.Div, exp.Mod), _Check._quotient),
    exp.Neg: _Check._negative,
    exp.DPipe: _Check._concatenated,
    exp.Like: _Check._like,
    **dict.fromkeys((exp.Cast, exp.TryCast), _Check._cast),
    exp.Interval: _Check._interval,
    **dict.fromkeys((exp.Subquery, exp.Select, exp.Union), _Check._query),
    exp.Exists: _Check._exists,
    exp.Anonymous: _Check._function,
    exp.CurrentDate: lambda check, node: "date",
    exp.CurrentTimestamp: lambda check, node: "timestamp",
    exp.Filter: _Check._filtered,
    exp.Window: _Check._window,
}


class _UnnamedError(DiffersError):
    """A name that nothing has, or not yet."""


def _differs(node: exp.Expr, what: str | None = None) -> DiffersError:
    shown = what or text_of(node)
    if len(shown) > 100:
        shown = shown[:100] + "..."
    return DiffersError(f"{shown} may mean something else there than in Spark")


def _items(tree: exp.Expr) -> list[exp.Expr] | None:
    """The items of the first SELECT of a query; None if one of them is a *."""
    while isinstance(tree, exp.Subquery | exp.SetOperation | exp.Paren):
        tree = tree.this
    if not isinstance(tree, exp.Select):
        return None
    found: list[exp.Expr] = []
    for item in tree.expressions:
        plain = item.this if isinstance(item, exp.Alias) else item
        if isinstance(plain, exp.Star) or (
            isinstance(plain, exp.Column) and isinstance(plain.this, exp.Star)
        ):
            return None
        found.append(plain)
    return found
