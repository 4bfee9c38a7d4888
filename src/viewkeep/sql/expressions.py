"""Scalar syntax trees to typed expressions in canonical form.

Canonical: constants are folded, a constant stands right of a comparison, and the arguments of
commutative functions are in the order of their texts; so expressions that are spelt differently in
these ways are equal. Anything not recognised is refused; nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import SqlError, TypeMismatch, Unsupported
from viewkeep.expr import Call, Expr, Lit
from viewkeep.ops.evaluate import evaluate_one
from viewkeep.ops.functions import VOID, call, cast_to
from viewkeep.sql.intervals import parts_of
from viewkeep.sql.parse import text_of
from viewkeep.sql.types import type_of
from viewkeep.types import BIGINT, BINARY, BOOLEAN, DOUBLE, INT, STRING, decimal

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
}
_UNARY: dict[type[exp.Expr], str] = {
    exp.Not: "not",
    exp.Neg: "negate",
    exp.BitwiseNot: "bitnot",
}
_COMMUTATIVE = {"and", "or", "eq", "ne", "null_safe_eq", "add", "multiply", "bitand", "bitor"}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_CASTS = {
    "int": "INT",
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "string": "STRING",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "binary": "BINARY",
    "float": "DOUBLE",
}
_EXTRACT = {"dow": "dayofweek", "doy": "dayofyear", "week": "weekofyear", "dayofmonth": "day"}
_FLUID = {
    "now", "current_timestamp", "current_date", "curdate", "localtimestamp", "current_timezone",
    "rand", "random", "randn", "uuid", "shuffle", "monotonically_increasing_id", "current_user",
    "input_file_name", "spark_partition_id", "unix_timestamp()",
}  # fmt: skip


def lower(tree: exp.Expr, leaf: Leaf) -> Expr:
    """The typed expression that a syntax tree stands for; `leaf` gives the meaning of columns."""
    try:
        return _lower(tree, leaf)
    except SqlError as error:
        if error.fragment is not None:
            raise
        raise type(error)(error.reason, fragment=text_of(tree), hint=error.hint) from error


def predicate(tree: exp.Expr, leaf: Leaf) -> Expr:
    """A condition: a BOOLEAN expression."""
    made = lower(tree, leaf)
    if made.type == VOID:
        return Lit(None, BOOLEAN)
    if made.type != BOOLEAN:
        raise TypeMismatch(f"a condition must be BOOLEAN, not {made.type}", fragment=text_of(tree))
    return made


def make(name: str, *args: Expr) -> Expr:
    """A call in canonical form."""
    if name in _COMMUTATIVE and len(args) == 2:
        args = tuple(sorted(args, key=_constants_last))
    elif name in _MIRRORED and isinstance(args[0], Lit) and not isinstance(args[1], Lit):
        name, args = _MIRRORED[name], (args[1], args[0])
    made = call(name, args)
    if isinstance(made, Call):  # the casts that the function asked for may be of constants
        made = Call(made.function, tuple(fold(arg) for arg in made.args), made.type)
    return fold(made)


def fold(expr: Expr) -> Expr:
    """A call of constants as the constant it gives."""
    if isinstance(expr, Call) and all(isinstance(arg, Lit) for arg in expr.args):
        return Lit(evaluate_one(expr, {}), expr.type)
    return expr


def conjuncts(expr: Expr) -> list[Expr]:
    """The conditions that a conjunction is made of, in canonical order, each once."""
    found: dict[str, Expr] = {}

    def visit(part: Expr) -> None:
        if isinstance(part, Call) and part.function == "and":
            for arg in part.args:
                visit(arg)
        else:
            found[str(part)] = part

    visit(expr)
    return [found[text] for text in sorted(found)]


def conjunction(parts: Sequence[Expr]) -> Expr:
    """One condition that is true where all of them are."""
    made = parts[0]
    for part in parts[1:]:
        made = call("and", [made, part])
    return made


def _constants_last(expr: Expr) -> tuple[bool, str]:
    return isinstance(expr, Lit), str(expr)


def _lower(tree: exp.Expr, leaf: Leaf) -> Expr:
    known = leaf(tree)
    if known is not None:
        return known
    for made in (_constant(tree), _operator(tree, leaf), _form(tree, leaf), _function(tree, leaf)):
        if made is not None:
            return made
    raise _refused(tree)


def _constant(tree: exp.Expr) -> Expr | None:
    if isinstance(tree, exp.Literal):
        return Lit(tree.name, STRING) if tree.is_string else _number(tree.name)
    if isinstance(tree, exp.Boolean):
        return Lit(bool(tree.this), BOOLEAN)
    if isinstance(tree, exp.Null):
        return Lit(None, VOID)
    if isinstance(tree, exp.HexString):
        return Lit(bytes.fromhex(tree.name), BINARY)
    return None


def _number(text: str) -> Lit:
    if "e" in text.lower():
        return Lit(float(text), DOUBLE)
    if "." in text:
        value = Decimal(text)
        scale = -int(value.as_tuple().exponent)
        digits = max(len(value.as_tuple().digits), scale)
        return Lit(value, decimal(max(digits, 1), scale))
    number = int(text)
    if -(2**31) <= number < 2**31:
        return Lit(number, INT)
    if -(2**63) <= number < 2**63:
        return Lit(number, BIGINT)
    return Lit(Decimal(number), decimal(len(text), 0))


def _operator(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    kind = type(tree)
    if kind is exp.Paren:
        return _lower(tree.this, leaf)
    if kind in (exp.Add, exp.Sub) and isinstance(tree.expression, exp.Interval):
        sign = -1 if kind is exp.Sub else 1
        return _shifted(_lower(tree.this, leaf), tree.expression, sign)
    if kind is exp.Add and isinstance(tree.this, exp.Interval):
        return _shifted(_lower(tree.expression, leaf), tree.this, 1)
    if kind in _BINARY:
        right = tree.expression
        if isinstance(right, exp.Any | exp.All):
            raise Unsupported("ANY and ALL are not taken", hint="Write the conditions with OR, AND")
        return make(_BINARY[kind], _lower(tree.this, leaf), _lower(right, leaf))
    if kind in _UNARY:
        return make(_UNARY[kind], _lower(tree.this, leaf))
    if isinstance(tree, exp.Is):
        return _is(_lower(tree.this, leaf), tree.expression)
    if isinstance(tree, exp.Between):
        value = _lower(tree.this, leaf)
        low, high = _lower(tree.args["low"], leaf), _lower(tree.args["high"], leaf)
        return make("and", make("ge", value, low), make("le", value, high))
    if isinstance(tree, exp.In):
        return _in(tree, leaf)
    if isinstance(tree, exp.Escape):
        inner = tree.this
        name = _BINARY.get(type(inner))
        if name not in ("like", "ilike"):
            raise _refused(tree)
        args = (inner.this, inner.expression, tree.expression)
        return make(name, *(_lower(arg, leaf) for arg in args))
    return None


def _is(value: Expr, what: exp.Expr) -> Expr:
    if isinstance(what, exp.Null):
        return make("is_null", value)
    if isinstance(what, exp.Boolean):
        return make("is_true" if what.this else "is_false", value)
    raise _refused(what)


def _in(tree: exp.In, leaf: Leaf) -> Expr:
    if tree.args.get("query") is not None or tree.args.get("unnest") is not None:
        raise Unsupported(
            "a subquery in an expression is not taken yet", hint="Use a list of values"
        )
    options = [_lower(option, leaf) for option in tree.expressions]
    value = _lower(tree.this, leaf)
    if not all(isinstance(option, Lit) for option in options):
        made = make("eq", value, options[0])
        for option in options[1:]:
            made = make("or", made, make("eq", value, option))
        return made
    distinct = {str(option): option for option in options}
    return make("in", value, *(distinct[text] for text in sorted(distinct)))


def _form(tree: exp.Expr, leaf: Leaf) -> Expr | None:
    """Functions that have a syntax of their own."""
    if isinstance(tree, exp.Cast | exp.TryCast):
        return fold(cast_to(_lower(tree.this, leaf), type_of(tree.to)))
    if isinstance(tree, exp.Case):
        return _case(tree, leaf)
    if isinstance(tree, exp.If):
        args = [tree.this, tree.args["true"], tree.args.get("false") or exp.Null()]
        return make("case", *(_lower(arg, leaf) for arg in args))
    if isinstance(tree, exp.Extract):
        part = tree.name.lower()
        return make(_EXTRACT.get(part, part), _lower(tree.expression, leaf))
    if isinstance(tree, exp.StrPosition):
        given = (tree.args.get("substr"), tree.this, tree.args.get("position"))
        return make("locate", *(_lower(arg, leaf) for arg in given if arg is not None))
    if isinstance(tree, exp.Substring):
        given = (tree.this, tree.args.get("start"), tree.args.get("length"))
        return make("substring", *(_lower(arg, leaf) for arg in given if arg is not None))
    if isinstance(tree, exp.Trim):
        side = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(
            tree.args.get("position") or "", "trim"
        )
        trimmed = (tree.this, *([tree.expression] if tree.expression else []))
        return make(side, *(_lower(arg, leaf) for arg in trimmed))
    return None


def _case(tree: exp.Case, leaf: Leaf) -> Expr:
    args: list[Expr] = []
    for branch in tree.args["ifs"]:
        condition: Expr
        if tree.this is not None:
            condition = make("eq", _lower(tree.this, leaf), _lower(branch.this, leaf))
        else:
            condition = _lower(branch.this, leaf)
        args += [condition, _lower(branch.args["true"], leaf)]
    default = tree.args.get("default")
    args.append(Lit(None, VOID) if default is None else _lower(default, leaf))
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
    args = [_lower(arg, leaf) for arg in tree.expressions]
    if name in _CASTS and len(args) == 1:
        return fold(cast_to(args[0], type_of(exp.DataType.build(_CASTS[name], dialect="spark"))))
    if name in ("nvl", "ifnull"):
        name = "coalesce"
    if name == "if":
        name = "case"
    if name in ("ltrim", "rtrim") and len(args) == 2:
        args.reverse()  # Spark's function form has the characters first
    return make(name, *args)


def _fluid(name: str) -> Unsupported:
    return Unsupported(
        f"{name} has another value each time it is asked, so no view can be kept by it",
        hint="Write the value into a column when a row is written",
    )


def _refused(tree: exp.Expr) -> SqlError:
    """The error for syntax that is not taken."""
    if type(tree).__name__.startswith("Current"):
        return _fluid(text_of(tree))
    if isinstance(tree, exp.Window):
        return Unsupported("window functions are not taken yet", fragment=text_of(tree))
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists):
        return Unsupported(
            "a subquery in an expression is not taken yet",
            fragment=text_of(tree),
            hint="Make the inner query a view of its own",
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
