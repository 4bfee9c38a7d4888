"""Aggregate calls: recognised in a select list, typed as Spark types them, named canonically."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sqlglot import exp

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.expr import Call, Expr, Lit, Ref
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.ops.functions.coercion import bounded
from viewkeep.plan.nodes import AggregateCall
from viewkeep.sql.canonical import make
from viewkeep.sql.columns import unused
from viewkeep.sql.expressions import Leaf, lower, predicate
from viewkeep.sql.parse import text_of
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, STRING, DataType

TAKEN = ("count", "sum", "avg", "min", "max")
_ALIASES = {"mean": "avg", "count_if": "count_if"}
_LATER = {
    "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "bool_and", "bool_or",
    "every", "some", "any_value", "first", "last", "first_value", "last_value", "array_agg",
    "collect_list", "collect_set", "string_agg", "listagg", "percentile", "median", "min_by",
    "max_by", "approx_count_distinct", "grouping", "corr", "covar_pop", "covar_samp", "mode",
    "approx_percentile", "percentile_approx", "percentile_cont", "percentile_disc", "std",
    "histogram_numeric", "skewness", "kurtosis", "bit_and", "bit_or", "bit_xor", "try_sum",
    "try_avg", "product", "grouping_id", "regr_count", "regr_slope", "regr_r2", "regr_intercept",
}  # fmt: skip


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether this very node is an aggregate call, with or without FILTER."""
    if isinstance(tree, exp.Filter):
        return True
    if isinstance(tree, exp.Anonymous):
        name = tree.name.lower()
        return name in TAKEN or name in _ALIASES or name in _LATER
    return False


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether the tree holds an aggregate call anywhere outside a window."""
    return any(is_aggregate(node) for node in tree.walk())


class Calls:
    """The aggregate calls of one query, each once. `taken` are column names already in use."""

    def __init__(self, rows: Leaf, taken: Iterable[str]):
        self._rows, self._taken = rows, frozenset(taken)
        self.found: dict[str, AggregateCall] = {}

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of an aggregate call: a column of the Aggregate; else what rows say."""
        if not is_aggregate(tree):
            return self._rows(tree)
        call = self._call(tree)
        self.found[call.name] = call
        return Ref(call.name, call.type)

    def _call(self, tree: exp.Expr) -> AggregateCall:
        condition: Expr | None = None
        function = tree
        if isinstance(tree, exp.Filter):
            condition = predicate(tree.expression.this, self._inner(tree))
            function = tree.this
        if not isinstance(function, exp.Anonymous):
            raise Unsupported("FILTER needs an aggregate", fragment=text_of(tree))
        name = _ALIASES.get(function.name.lower(), function.name.lower())
        if not is_aggregate(function):
            raise Unsupported("FILTER needs an aggregate", fragment=text_of(tree))
        if name in _LATER:
            raise Unsupported(
                f"the aggregate {name} is not taken yet",
                fragment=text_of(tree),
                hint=f"Taken are {', '.join(TAKEN)}, DISTINCT and FILTER",
            )
        if len(function.expressions) != 1:
            raise Unsupported(f"{name} takes one argument", fragment=text_of(tree))
        argument = function.expressions[0]
        distinct = isinstance(argument, exp.Distinct)
        if distinct:
            if len(argument.expressions) != 1 or argument.args.get("on"):
                raise Unsupported(f"{name} DISTINCT takes one argument", fragment=text_of(tree))
            argument = argument.expressions[0]
        if isinstance(argument, exp.Star):
            if name != "count" or distinct:
                raise Unsupported("* is an argument of COUNT alone", fragment=text_of(tree))
            return self._made("count", False, None if condition is None else _when(condition))
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            raise Unsupported(f"{name} takes one column", fragment=text_of(tree))
        if name == "count_if":
            name, value = "count", _when(predicate(argument, self._inner(tree)))
        else:
            value = lower(argument, self._inner(tree))
        if condition is not None:
            value = make("case", condition, value, Lit(None, VOID))
        if isinstance(value, Lit) and value.value is not None and name == "count" and not distinct:
            return self._made("count", False, None)  # COUNT(1) counts rows
        if value.type == VOID:
            value = Lit(None, STRING if name in ("min", "max", "count") else DOUBLE)
        return self._made(name, distinct and name not in ("min", "max"), value)

    def _inner(self, tree: exp.Expr) -> Leaf:
        def leaf(inner: exp.Expr) -> Expr | None:
            if is_aggregate(inner):
                raise Unsupported(
                    "an aggregate inside an aggregate has no meaning",
                    fragment=text_of(tree),
                    hint="Make the inner one a view and aggregate that",
                )
            return self._rows(inner)

        return leaf

    def _made(self, name: str, distinct: bool, value: Expr | None) -> AggregateCall:
        if value is None:
            return AggregateCall(self._named("count(*)"), "count_star", None, BIGINT)
        result = _result(name, value.type)
        if name in ("sum", "avg") and value.type == STRING:
            value = cast_to(value, DOUBLE)
        text = f"{name}({'distinct ' if distinct else ''}{value})"
        function = f"{name}_distinct" if distinct else name
        return AggregateCall(self._named(text), function, value, result)

    def _named(self, text: str) -> str:
        # A group may be keyed by what another query counted, under that very name.
        return unused(text, self._taken)


def group_rewriter(keys: Mapping[Expr, str], aggregates: Iterable[str]) -> Callable[[Expr], Expr]:
    """Turns expressions over rows and aggregates into expressions over the Aggregate's columns."""
    made = frozenset(aggregates)

    def rewrite(expr: Expr) -> Expr:
        if expr in keys:
            return Ref(keys[expr], expr.type)
        if isinstance(expr, Ref) and expr.name not in made:
            raise Unsupported(
                f"{expr.name} is neither grouped by nor inside an aggregate",
                hint="Add it to GROUP BY, or take its MIN or MAX",
            )
        if isinstance(expr, Call):
            return Call(expr.function, tuple(rewrite(arg) for arg in expr.args), expr.type)
        return expr

    return rewrite


def _when(condition: Expr) -> Expr:
    return make("case", condition, Lit(True, BOOLEAN), Lit(None, VOID))


def _result(name: str, given: DataType) -> DataType:
    if name == "count":
        return BIGINT
    if name in ("min", "max"):
        return given
    if given.is_decimal:
        if name == "sum":
            return bounded(given.precision + 10, given.scale)
        return bounded(given.precision + 4, given.scale + 4)
    if given.is_integer and name == "sum":
        return BIGINT
    if given.is_numeric or given == STRING:
        return DOUBLE
    raise TypeMismatch(f"{name} of {given} has no meaning", hint=f"{name} takes a number")
