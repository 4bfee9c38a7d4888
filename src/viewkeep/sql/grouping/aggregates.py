"""Aggregate calls: recognised in a select list, typed as Spark types them, named canonically.

Law: a call's value is a function of the multiset of its group's rows. Where SQL leaves a choice
(the order of a list, which of several rows MIN_BY takes), one is made here;
`sql.spark_sql.determined` says it in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from sqlglot import exp

from viewkeep.errors import TypeMismatch, Unsupported
from viewkeep.expr import Call, Expr, Lit, Ref, Scalar, unused
from viewkeep.ops.aggregates.registry import AGGREGATES, spelt
from viewkeep.ops.functions import VOID, cast_to
from viewkeep.plan.nodes import AggregateCall, Ordering
from viewkeep.sql.expressions.canonical import fold, make
from viewkeep.sql.expressions.scalars import Leaf, lower, predicate
from viewkeep.sql.parse.syntax import text_of
from viewkeep.types import BIGINT, BOOLEAN, DOUBLE, STRING

_OF_TWO = ("covar_pop", "covar_samp", "corr", "min_by", "max_by")
_RANKED = ("percentile", "median", "percentile_cont", "percentile_disc")
JOINED = ("string_agg", "listagg")
LISTED = ("array_agg", "collect_list", "collect_set")
_OTHERS = ("count_if", *_OF_TWO, *_RANKED, *JOINED, *LISTED)
_WITHIN = ("percentile_cont", "percentile_disc")
_BY_ORDER = "Say which row with MIN_BY(x, y) or MAX_BY(x, y), or take ANY_VALUE(x)"
_EXACT = "Use PERCENTILE, which is exact here"
_REFUSED: dict[str, str | None] = {
    "first": _BY_ORDER, "last": _BY_ORDER, "first_value": _BY_ORDER, "last_value": _BY_ORDER,
    "approx_count_distinct": "Use COUNT(DISTINCT x), which is exact here",
    "approx_percentile": _EXACT, "percentile_approx": _EXACT,
    "bit_and": None, "bit_or": None, "mode": "Count the values in a view of its own",
    "try_sum": "Use SUM", "try_avg": "Use AVG", "grouping": None, "grouping_id": None,
    "histogram_numeric": None, "skewness": None, "kurtosis": None, "product": None,
    "regr_count": None, "regr_slope": None, "regr_r2": None, "regr_intercept": None,
}  # fmt: skip
_AROUND = exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls


def is_aggregate(tree: exp.Expr) -> bool:
    """Whether this very node is an aggregate call, with or without FILTER and the like."""
    if isinstance(tree, exp.Filter | exp.WithinGroup):
        return True
    if isinstance(tree, exp.IgnoreNulls | exp.RespectNulls):
        return is_aggregate(tree.this)
    if isinstance(tree, exp.Any):  # `a = ANY (...)` is no aggregate
        return isinstance(tree.this, exp.Paren) and not isinstance(tree.parent, exp.Binary)
    return isinstance(tree, exp.Anonymous) and (
        is_taken(tree.name.lower()) or tree.name.lower() in _REFUSED
    )


def is_taken(word: str) -> bool:
    """Whether an aggregate is called so."""
    return word in _OTHERS or spelt(word) is not None


def has_aggregate(tree: exp.Expr) -> bool:
    """Whether the tree holds an aggregate call anywhere, that of a window function left out."""
    windows = {id(part) for window in tree.find_all(exp.Window) for part in _function(window)}
    # The aggregates of a subquery are its own.
    nodes = tree.walk(prune=lambda node: isinstance(node, exp.Query))
    return any(is_aggregate(node) and id(node) not in windows for node in nodes)


def _function(window: exp.Window) -> Iterator[exp.Expr]:
    """The function that a window is computed by, with what stands around it."""
    part = window.this
    while isinstance(part, _AROUND):
        yield part
        part = part.this
    yield part


@dataclass(frozen=True)
class _Written:
    """An aggregate call as it is written."""

    tree: exp.Expr
    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool
    order: tuple[exp.Expr, ...] | None  # of WITHIN GROUP, or inside the parentheses
    condition: exp.Expr | None  # of FILTER

    @property
    def text(self) -> str:
        return text_of(self.tree)

    def need(self, *counts: int) -> None:
        if len(self.arguments) not in counts:
            words = {1: "one argument", 2: "two arguments"}
            wanted = " or ".join(words.get(count, str(count)) for count in counts)
            raise Unsupported(f"{self.name} takes {wanted}", fragment=self.text)


def _read(tree: exp.Expr) -> _Written:
    function, condition, order, inside, nulls = tree, None, None, None, False
    while isinstance(function, _AROUND):
        if isinstance(function, exp.Filter):
            condition = function.expression.this
        elif isinstance(function, exp.WithinGroup):
            order = tuple(function.expression.expressions)
        else:
            nulls = True
        function = function.this
    if not is_aggregate(function):
        raise Unsupported("FILTER needs an aggregate", fragment=text_of(tree))
    if isinstance(function, exp.Any):
        name, arguments = "any", [function.this.this]
    else:
        name, (arguments, inside) = function.name.lower(), given_to(function)
        if inside is not None and order is not None:
            raise Unsupported(f"{name} has two orders", fragment=text_of(tree))
        order = inside if order is None else order
    if name in _REFUSED:
        hint = _REFUSED[name] or f"Taken are {', '.join(sorted(_taken()))}"
        raise Unsupported(f"the aggregate {name} is not taken", fragment=text_of(tree), hint=hint)
    if nulls and name != "any_value":
        raise Unsupported(f"{name} has no treatment of NULLs", fragment=text_of(tree))
    if order is not None and name not in (*_WITHIN, *JOINED, *LISTED):
        words = "ORDER BY inside" if inside is not None else "WITHIN GROUP"
        raise Unsupported(f"{name} takes no {words}", fragment=text_of(tree))
    distinct = len(arguments) > 0 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = [*arguments[0].expressions, *arguments[1:]]
    for argument in arguments:
        if isinstance(argument, exp.Column) and isinstance(argument.this, exp.Star):
            raise Unsupported(f"{name} takes one column", fragment=text_of(tree))
        if isinstance(argument, exp.Star) and (name != "count" or distinct or len(arguments) > 1):
            raise Unsupported("* is an argument of COUNT alone", fragment=text_of(tree))
    return _Written(tree, name, tuple(arguments), distinct, order, condition)


def _taken() -> Iterator[str]:
    yield from _OTHERS
    for function in AGGREGATES.values():
        yield from function.spellings


def given_to(function: exp.Expr) -> tuple[list[exp.Expr], tuple[exp.Expr, ...] | None]:
    """The arguments of a call, and the ORDER BY that stands after the last of them."""
    arguments = list(function.expressions)
    if not arguments or not isinstance(arguments[-1], exp.Order):
        return arguments, None
    last = arguments[-1]
    return [*arguments[:-1], last.this], tuple(last.expressions)


class Calls:
    """The aggregate calls of one query, each once. `taken` are column names already in use."""

    def __init__(self, rows: Leaf, taken: Iterable[str]):
        self._rows, self._taken = rows, frozenset(taken)
        self.found: dict[str, AggregateCall] = {}

    def leaf(self, tree: exp.Expr) -> Expr | None:
        """The meaning of an aggregate call: a column of the Aggregate; else what rows say."""
        if not is_aggregate(tree):
            return self._rows(tree)
        call = self._call(_read(tree))
        self.found[call.name] = call
        return Ref(call.name, call.type)

    def _call(self, written: _Written) -> AggregateCall:
        if written.name in _OF_TWO:
            return self._of_two(written)
        if written.name in _RANKED:
            return self._percentile(written)
        if written.name in JOINED:
            return self._joined(written)
        if written.name in LISTED:
            return self._listed(written)
        entry = spelt(written.name)
        name = written.name if entry is None else entry.name
        if name == "count" and len(written.arguments) > 1:
            return self._count_of_several(written)
        written.need(*((1, 2) if written.name == "any_value" else (1,)))
        if isinstance(written.arguments[0], exp.Star):
            condition = self._condition(written)
            return self._made("count", None if condition is None else _when(condition))
        if name in ("count_if", "bool_and", "bool_or"):
            value = predicate(written.arguments[0], self._inner(written.tree))
            value = self._filtered(written, value)
            if name != "count_if":
                return self._made(name, value)
            name, value = "count", _when(value)
        else:
            value = self._value(written, 0)
        constant = isinstance(value, Lit) and value.value is not None
        if name == "count" and constant and not written.distinct:
            return self._made("count", None)  # COUNT(1) counts rows
        if value.type == VOID:
            value = Lit(None, STRING if name in ("min", "max", "count") else DOUBLE)
        return self._made(name, value, written.distinct and AGGREGATES[name].takes_distinct)

    def _count_of_several(self, written: _Written) -> AggregateCall:
        """COUNT(a, b): rows in which none is NULL, or different such rows."""
        values = [self._value(written, i) for i in range(len(written.arguments))]
        values = [Lit(None, STRING) if value.type == VOID else value for value in values]
        if not written.distinct:
            known = [make("is_not_null", value) for value in values]
            return self._made("count", _when(make("and", *known)))
        first, *others = dict.fromkeys(values)
        return self._made("count", first, True, [Ordering(other) for other in others])

    def _of_two(self, written: _Written) -> AggregateCall:
        written.need(2)
        _refuse_distinct(written)
        x, y = self._value(written, 0), self._value(written, 1)
        if written.name in ("min_by", "max_by"):
            x, y = (Lit(None, STRING) if part.type == VOID else part for part in (x, y))
            return self._made(written.name, x, by=[Ordering(y)])
        x, y = (_double(written, part) for part in (x, y))
        # Both sums are over the rows in which neither is NULL.
        x, y = _beside(x, y), _beside(y, x)
        return self._made(written.name, x, by=[Ordering(y)])

    def _percentile(self, written: _Written) -> AggregateCall:
        name, descending = written.name, False
        if name in _WITHIN:
            written.need(1)
            _refuse_distinct(written)
            order = self._order(written)
            if len(order) != 1:
                raise Unsupported(
                    f"{name} is of one expression in its WITHIN GROUP",
                    fragment=written.text,
                    hint=f"Write {name}(0.5) WITHIN GROUP (ORDER BY x)",
                )
            value, descending = self._filtered(written, order[0].expr), order[0].descending
            fraction = self._fraction(written, written.arguments[0])
        else:
            written.need(1 if name == "median" else 2)
            value = self._value(written, 0)
            fraction = 0.5 if name == "median" else self._fraction(written, written.arguments[1])
        if not value.type.is_numeric:
            value = _double(written, value)
        name = name if name == "percentile_disc" else "percentile_cont"
        return self._made(name, value, written.distinct, parameters=(fraction, descending))

    def _fraction(self, written: _Written, tree: exp.Expr) -> float:
        if isinstance(tree, exp.Anonymous) and tree.name.lower() == "array":
            raise Unsupported(
                "several fractions at once are not taken",
                fragment=written.text,
                hint=f"Write a {written.name} for each",
            )
        made = lower(tree, self._inner(written.tree))
        fits = isinstance(made, Lit) and isinstance(made.value, int | float | Decimal)
        if not fits or not 0 <= made.value <= 1:  # type: ignore[union-attr, operator]
            raise TypeMismatch(
                f"the fraction of {written.name} is a constant from 0 to 1", fragment=text_of(tree)
            )
        return float(made.value)  # type: ignore[union-attr, arg-type]

    def _joined(self, written: _Written) -> AggregateCall:
        written.need(1, 2)
        between: Scalar = ""
        if len(written.arguments) == 2:
            given = lower(written.arguments[1], self._inner(written.tree))
            if not isinstance(given, Lit) or given.type not in (STRING, VOID):
                raise TypeMismatch(
                    f"the separator of {written.name} is a constant text",
                    fragment=text_of(written.arguments[1]),
                )
            between = given.value or ""
        plain = self._plain(written)
        if plain.type.name == "BINARY":
            raise Unsupported(
                f"{written.name} of BINARY is not taken", fragment=written.text, hint="Use hex(x)"
            )
        value = self._filtered(written, fold(cast_to(plain, STRING)))
        by = self._order(written, plain) or [Ordering(plain)]
        # Where the value itself is ordered by, it need not be kept twice.
        if plain.type == STRING:
            by = [Ordering(value, p.descending) if p.expr == plain else p for p in by]
        return self._made("string_agg", value, written.distinct, by, (between,))

    def _listed(self, written: _Written) -> AggregateCall:
        written.need(1)
        distinct = written.distinct or written.name == "collect_set"
        plain = self._plain(written)
        value = self._filtered(written, plain)
        by = self._order(replace(written, distinct=distinct), plain)
        by = [Ordering(value, p.descending) if p.expr == plain else p for p in by]
        if by and by[-1] == Ordering(value):  # the order of the values themselves comes last anyway
            by.pop()
        return self._made("array_agg", value, distinct, by)

    def _plain(self, written: _Written) -> Expr:
        """What a call collects, before FILTER; a NULL without a type is a text."""
        plain = lower(written.arguments[0], self._inner(written.tree))
        return Lit(None, STRING) if plain.type == VOID else plain

    def _order(self, written: _Written, value: Expr | None = None) -> list[Ordering]:
        """What a call is ordered by, as far as it matters: up to the value that it collects.

        Where NULLs are not where the direction puts them, being NULL is ordered by before.
        """
        made: dict[Expr, Ordering] = {}
        for part in written.order or ():
            expr, down = lower(part.this, self._inner(written.tree)), bool(part.args.get("desc"))
            if expr.type == VOID:
                raise Unsupported("NULL orders nothing", fragment=text_of(part))
            if written.distinct and (expr != value or len(written.order or ()) > 1):
                raise Unsupported(
                    f"{written.name} DISTINCT is ordered by its argument alone",
                    fragment=written.text,
                )
            if bool(part.args.get("nulls_first")) == down and expr != value and expr not in made:
                if written.name in _WITHIN:
                    raise Unsupported(
                        "NULLS FIRST and LAST are fixed by the direction", fragment=text_of(part)
                    )
                unknown = make("is_null", expr)
                made.setdefault(unknown, Ordering(unknown, down))
            made.setdefault(expr, Ordering(expr, down))
            if expr == value:
                break
        return list(made.values())

    def _value(self, written: _Written, place: int) -> Expr:
        return self._filtered(written, lower(written.arguments[place], self._inner(written.tree)))

    def _filtered(self, written: _Written, value: Expr) -> Expr:
        condition = self._condition(written)
        return value if condition is None else make("case", condition, value, Lit(None, VOID))

    def _condition(self, written: _Written) -> Expr | None:
        if written.condition is None:
            return None
        return predicate(written.condition, self._inner(written.tree))

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

    def _made(
        self,
        name: str,
        value: Expr | None,
        distinct: bool = False,
        by: Sequence[Ordering] = (),
        parameters: tuple[Scalar, ...] = (),
    ) -> AggregateCall:
        if value is None:
            return AggregateCall(self._named("count(*)"), "count_star", None, BIGINT)
        entry = AGGREGATES[name]
        result = entry.result(value.type)
        if entry.takes_double(value.type):
            value = fold(cast_to(value, DOUBLE))
        words = [str(value), *(f"{p.expr}{' desc' if p.descending else ''}" for p in by)]
        words += [repr(parameter) for parameter in parameters]
        text = f"{name}({'distinct ' if distinct else ''}{', '.join(words)})"
        function = f"{name}_distinct" if distinct else name
        return AggregateCall(self._named(text), function, value, result, tuple(by), parameters)

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


def _refuse_distinct(written: _Written) -> None:
    if written.distinct:
        raise Unsupported(f"DISTINCT is not taken in {written.name}", fragment=written.text)


def _double(written: _Written, value: Expr) -> Expr:
    if not value.type.is_numeric and value.type not in (STRING, VOID):
        raise TypeMismatch(
            f"{written.name} of {value.type} has no meaning",
            fragment=written.text,
            hint=f"{written.name} takes a number",
        )
    return fold(cast_to(value, DOUBLE))


def _beside(value: Expr, other: Expr) -> Expr:
    """A value where the other is not NULL either."""
    return make("case", make("is_not_null", other), value, Lit(None, VOID))


def _when(condition: Expr) -> Expr:
    return make("case", condition, Lit(True, BOOLEAN), Lit(None, VOID))
