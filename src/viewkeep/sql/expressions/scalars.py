"""Scalar syntax trees to typed expressions in canonical form.

Law: anything not recognised is refused, with the innermost fragment that is to blame. The parts of
a node that are not read here have been refused by `understood`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeAlias

from sqlglot import exp

from viewkeep import interrupts
from viewkeep.errors import SqlError, TypeMismatch, UnknownName, Unsupported
from viewkeep.expr import MOST_DEEP, Call, Expr, Lit
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.sql.expressions.canonical import conjunction, fold, make
from viewkeep.sql.expressions.constants import constant
from viewkeep.sql.expressions.intervals import parts_of
from viewkeep.sql.expressions.outer_references import any_row
from viewkeep.sql.expressions.stored_values import TOO_FINE
from viewkeep.sql.expressions.type_names import cast_type
from viewkeep.sql.parse.limits import too_large
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import BIGINT, BOOLEAN, INT, TIMESTAMP, DataType

# What a column, an aggregate or another leaf means is up to the place an expression stands in.
Leaf: TypeAlias = Callable[[exp.Expr], Expr | None]

_BINARY: dict[type[exp.Expr], str] = {
    exp.And: "and",
    exp.Or: "or",
    exp.EQ: "eq",
    exp.NEQ: "ne",
    exp.LT: "lt",
    exp.LTE: "le",
    exp.GT: "gt",
    exp.GTE: "ge",
    exp.NullSafeEQ: "null_safe_eq",
    exp.Add: "add",
    exp.Sub: "subtract",
    exp.Mul: "multiply",
    exp.Div: "divide",
    exp.Mod: "remainder",
    exp.IntDiv: "int_divide",
    exp.DPipe: "concat",
    exp.RegexpLike: "rlike",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.BitwiseAnd: "bitand",
    exp.BitwiseOr: "bitor",
    exp.BitwiseXor: "bitxor",
    exp.BitwiseLeftShift: "shiftleft",
    exp.BitwiseRightShift: "shiftright",
}
_FLAT = (exp.And, exp.Or)
_LONGEST_FRAGMENT = 400
_UNARY: dict[type[exp.Expr], str] = {
    exp.Not: "not",
    exp.Neg: "negate",
    exp.BitwiseNot: "bitnot",
}
_CASTS = (
    "int", "bigint", "double", "string", "boolean", "date", "timestamp", "binary", "decimal",
    "float", "tinyint", "smallint",
)  # fmt: skip
_EXTRACT = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "dayofweek": "dayofweek",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
}
_FLUID = {
    "now", "current_timestamp", "current_date", "curdate", "localtimestamp", "current_timezone",
    "rand", "randn", "uuid", "shuffle", "monotonically_increasing_id", "current_user",
    "input_file_name", "spark_partition_id", "user", "session_user", "current_time", "random",
    "randstr", "uniform", "current_catalog", "current_database", "current_schema", "version",
}  # fmt: skip


# Kernels that SQL has an operator or a form for. Spark has no functions of these names, so a view
# that called them could not be recomputed by it.
_KERNELS = {
    "add", "add_interval", "bitand", "bitnot", "bitor", "bitxor", "divide", "eq", "ge", "gt", "iff",
    "int_divide", "is_false", "is_not_null", "is_null", "is_true", "le", "lt", "multiply", "ne",
    "negate", "null_safe_eq", "remainder", "subtract",
}  # fmt: skip


def lower(tree: exp.Expr, leaf: Leaf) -> Expr:
    """The typed expression that a syntax tree stands for; `leaf` gives the meaning of columns.

    A chain of operators, `a + b + c`, is a tree as deep as it is long: it is lowered by a loop.
    """
    interrupts.check()
    chain: list[exp.Expr] = []
    known = _meaning(tree, leaf)
    while known is None and _chains(tree):
        chain.append(tree)
        tree = tree.this
        known = _meaning(tree, leaf)
    if sum(type(link) not in _FLAT for link in chain) > MOST_DEEP:
        raise _blaming(too_large(deep=True), chain[0])
    try:
        made = _lower(tree, leaf) if known is None else known
    except SqlError as error:
        raise _blaming(error, tree) from error
    while chain:
        link = chain.pop()
        links = [link]
        while type(link) in _FLAT and chain and type(chain[-1]) is type(link):
            links.append(chain.pop())
        made = _linked(made, links, leaf)
    return made


def _meaning(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    try:
        return leaf(tree)
    except SqlError as error:
        raise _blaming(error, tree) from error


def _chains(tree: exp.Expr) -> bool:
    """Whether a tree is an operator whose left operand may be one too."""
    return type(tree) in _BINARY and not isinstance(tree.this, exp.Interval)


def _linked(left: Expr, links: Sequence[exp.Expr], leaf: Leaf) -> Expr:
    """A left operand with one operator and its right operand, or with several AND or OR."""
    if len(links) > 1:
        with suppress(SqlError):  # one after the other, they say which is to blame
            rest = [lower(link.expression, leaf) for link in links]
            return make(_BINARY[type(links[0])], left, *rest)
    for link in links:
        try:
            left = _binary(left, link, leaf)
        except SqlError as error:
            raise _blaming(error, link) from error
    return left


def _blaming(error: SqlError, tree: exp.Expr) -> SqlError:
    """The error with the fragment that is to blame; the innermost has the word."""
    if error.fragment is not None:
        return error
    return type(error)(error.reason, fragment=_short(text_of(tree)), hint=error.hint)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_FRAGMENT else f"{text[:_LONGEST_FRAGMENT]} ..."


def predicate(tree: exp.Expr, leaf: Leaf) -> Expr:
    """A condition: a BOOLEAN expression."""
    made = lower(tree, leaf)
    if made.type == VOID:
        return Lit(None, BOOLEAN)
    if made.type != BOOLEAN:
        raise TypeMismatch(f"a condition must be BOOLEAN, not {made.type}", fragment=text_of(tree))
    return made


def _lower(tree: exp.Expr, leaf: Leaf) -> Expr:
    written = constant(tree)
    if written is not None:
        return written
    for read in (_operator, _form, _function):
        made = read(tree, leaf)
        if made is not None:
            return made
    raise _refused(tree)


def _operator(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    kind = type(tree)
    if kind is exp.Paren:
        return lower(tree.this, leaf)
    if kind is exp.Add and isinstance(tree.this, exp.Interval):
        return _shifted(lower(tree.expression, leaf), tree.this, 1)
    if kind in _BINARY:  # of an interval, which is no value
        return _binary(lower(tree.this, leaf), tree, leaf)
    if kind is exp.NullSafeNEQ:
        equal = make("null_safe_eq", lower(tree.this, leaf), lower(tree.expression, leaf))
        return make("not", equal)
    if kind in _UNARY:
        return make(_UNARY[kind], lower(tree.this, leaf))
    if isinstance(tree, exp.Is):
        return _is(lower(tree.this, leaf), tree.expression)
    if isinstance(tree, exp.Between):
        value = lower(tree.this, leaf)
        low, high = lower(tree.args["low"], leaf), lower(tree.args["high"], leaf)
        return make("and", make("ge", value, low), make("le", value, high))
    if isinstance(tree, exp.In):
        return _in(tree, leaf)
    if isinstance(tree, exp.Escape):
        inner = tree.this
        name = _BINARY.get(type(inner))
        if name not in ("like", "ilike"):
            raise _refused(tree)
        args = (inner.this, inner.expression, tree.expression)
        made = make(name, *(lower(arg, leaf) for arg in args))
        return make("not", made) if inner.args.get("negate") else made
    return None


def _binary(left: Expr, tree: exp.Expr, leaf: Leaf) -> Expr:
    """An operator with its left operand given."""
    kind, right = type(tree), tree.expression
    if kind in (exp.Add, exp.Sub) and isinstance(right, exp.Interval):
        return _shifted(left, right, -1 if kind is exp.Sub else 1)
    if isinstance(right, exp.Any | exp.All):
        hint = "Write the conditions with OR, AND"
        if right.find(exp.Query):
            hint = "Use IN or EXISTS, or compare with the MIN or MAX of the subquery"
        raise Unsupported("ANY and ALL are not taken", hint=hint)
    made = make(_BINARY[kind], left, lower(right, leaf))
    return make("not", made) if tree.args.get("negate") else made


def _is(value: Expr, what: exp.Expr) -> Expr:
    if isinstance(what, exp.Null):
        return make("is_null", value)
    if isinstance(what, exp.Boolean):
        return make("is_true" if what.this else "is_false", value)
    raise _refused(what)


def _in(tree: exp.In, leaf: Leaf) -> Expr:
    if tree.args.get("unnest") is not None:
        raise Unsupported("UNNEST is not taken", hint="Use a list of values")
    if tree.args.get("query") is not None:
        return _in_query(tree, leaf)
    if isinstance(tree.this, exp.Tuple):
        raise Unsupported("IN takes one value on its left", hint="Write the conditions with AND")
    options = [lower(option, leaf) for option in tree.expressions]
    return make("in", lower(tree.this, leaf), *options)


def _in_query(tree: exp.In, leaf: Leaf) -> Expr:
    """IN of the rows of a subquery: a condition that any of them may fulfil."""
    query = tree.args["query"]
    rows = leaf(query)
    if not isinstance(rows, Call):
        raise _refused(query)
    written = tree.this.expressions if isinstance(tree.this, exp.Tuple) else [tree.this]
    values = [lower(value, leaf) for value in written]
    if len(values) != len(rows.args):
        raise Unsupported(
            f"IN compares {len(values)} values with {len(rows.args)} columns",
            fragment=text_of(tree),
        )
    pairs = zip(values, rows.args, strict=True)
    return any_row(rows, conjunction(make("eq", value, column) for value, column in pairs))


def _form(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    """Functions that have a syntax of their own."""
    if isinstance(tree, exp.Cast | exp.TryCast):
        return _cast(tree, leaf)
    if isinstance(tree, exp.Case):
        return _case(tree, leaf)
    if isinstance(tree, exp.If):
        args = [tree.this, tree.args["true"], tree.args.get("false")]
        if args[2] is None:
            raise TypeMismatch("IF takes a condition and two values")
        return make("case", *(lower(arg, leaf) for arg in args))
    if isinstance(tree, exp.Extract):
        part = tree.name.lower()
        if part not in _EXTRACT:
            raise Unsupported(f"EXTRACT takes {', '.join(_EXTRACT)}", fragment=text_of(tree))
        return make(_EXTRACT[part], lower(tree.expression, leaf))
    if isinstance(tree, exp.StrPosition):
        given = (tree.args.get("substr"), tree.this, tree.args.get("position"))
        return make("locate", *(lower(arg, leaf) for arg in given if arg is not None))
    if isinstance(tree, exp.Substring):
        given = (tree.this, tree.args.get("start"), tree.args.get("length"))
        return make("substring", *(lower(arg, leaf) for arg in given if arg is not None))
    if isinstance(tree, exp.Trim):
        side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(
            tree.args.get("position") or "", "trim"
        )
        trimmed = (tree.this, *([tree.expression] if tree.expression else []))
        return make(side, *(lower(arg, leaf) for arg in trimmed))
    return None


def _cast(tree: exp.Expr, leaf: Leaf) -> Expr:
    inner, target = tree.this, cast_type(tree.args["to"])
    made = fold(cast_to(lower(inner, leaf), target))
    # sqlglot reads DATE '...' as Cast and CAST(...) as TryCast: the first is a constant.
    if type(tree) is exp.Cast and isinstance(inner, exp.Literal) and made == Lit(None, target):
        raise TypeMismatch(f"this is no {target}", fragment=text_of(inner))
    if type(tree) is exp.Cast and target == TIMESTAMP and TOO_FINE.search(inner.name):
        raise TypeMismatch(
            "this is finer than the microseconds of a TIMESTAMP",
            fragment=text_of(inner),
            hint="Write six digits of a second, or CAST('...' AS TIMESTAMP), which cuts the rest",
        )
    return made


def _case(tree: exp.Case, leaf: Leaf) -> Expr:
    args: list[Expr] = []
    for branch in tree.args["ifs"]:
        condition: Expr
        if tree.this is not None:
            condition = make("eq", lower(tree.this, leaf), lower(branch.this, leaf))
        else:
            condition = lower(branch.this, leaf)
        args += [condition, lower(branch.args["true"], leaf)]
    default = tree.args.get("default")
    args.append(Lit(None, VOID) if default is None else lower(default, leaf))
    return make("case", *args)


def _shifted(value: Expr, interval: exp.Interval, sign: int) -> Expr:
    months, days, microseconds = (sign * part for part in parts_of(interval))
    parts = (Lit(months, INT), Lit(days, INT), Lit(microseconds, BIGINT))
    return make("add_interval", value, *parts)


def _function(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    if not isinstance(tree, exp.Anonymous):
        return None
    name = tree.name.lower()
    if name in _FLUID or (name == "unix_timestamp" and not tree.expressions):
        raise _fluid(name)
    if name in _KERNELS:
        raise UnknownName(f"there is no function {name}", hint="Write the operator")
    args = [lower(arg, leaf) for arg in tree.expressions]
    if name in _CASTS and len(args) == 1:
        return fold(cast_to(args[0], _named_type(name)))
    if name in ("ltrim", "rtrim") and len(args) == 2:
        args.reverse()  # Spark's function form has the characters first
    return make(name, *args)


def _named_type(name: str) -> DataType:
    return cast_type(exp.DataType.build(name, dialect="spark"))


def _fluid(name: str) -> Unsupported:
    return Unsupported(
        f"{name} has another value each time it is asked, so no view can be kept by it",
        hint="Let the program that writes a row put the value into a column",
    )


def _refused(tree: exp.Expr) -> SqlError:
    """The error for syntax that is not taken."""
    if type(tree).__name__.startswith(("Current", "SessionUser")):
        return _fluid(text_of(tree))
    if isinstance(tree, exp.Window):
        return Unsupported(
            "a window function stands in SELECT, QUALIFY or ORDER BY, outside other functions of "
            "its kind",
            fragment=text_of(tree),
            hint="Choose rows by it with QUALIFY, or compute it in a derived table",
        )
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists):
        return Unsupported(
            "a subquery is not taken here",
            fragment=text_of(tree),
            hint="Subqueries stand in SELECT, WHERE, HAVING and ORDER BY of a query",
        )
    if isinstance(tree, exp.Star):
        return Unsupported("* stands for columns only as an item of SELECT or in COUNT(*)")
    if isinstance(tree, exp.Interval):
        return Unsupported(
            "an interval is no value by itself",
            fragment=text_of(tree),
            hint="Add it to a DATE or TIMESTAMP",
        )
    return Unsupported(f"{type(tree).__name__} is not taken here", fragment=text_of(tree))
