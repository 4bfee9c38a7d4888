"""Time buckets: `window(ts, 'length'[, 'slide'[, 'offset']])`, as Spark cuts time into windows.

Law: a bucket holds the instants from its start up to, but without, its end; starts are whole
slides after 1970-01-01 00:00 UTC plus the offset. Without a slide each row is in one bucket, whose
start is an expression of the row. With one shorter than the length a row is in several buckets:
the rows are a union, with a copy of the row for each. Rows without a time are in no bucket.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from viewkeep.errors import SqlError, TypeMismatch, Unsupported
from viewkeep.expr import Expr, Lit, Ref, unused
from viewkeep.plan.nodes import Named, Node, Project, Union
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.intervals import parts_of
from viewkeep.sql.expressions.scalars import lower
from viewkeep.sql.parse.syntax import text_of
from viewkeep.sql.relations.columns import filtered
from viewkeep.sql.relations.scope import Relation, Scope
from viewkeep.types import BIGINT, INT, TIMESTAMP

MOST_COPIES = 60
_NAME = "window"
_COPY = "#copy"  # tells the copies of a row apart
_DAY = 86_400_000_000
_YEARS = 10_000 * 366 * _DAY  # more than there is before 1970
START = exp.column("start", table=_NAME)
"""The start of the bucket, as it is written in a query."""


@dataclass(frozen=True)
class _Bucket:
    time: Expr
    length: int
    slide: int
    offset: int


def is_bucket(tree: exp.Expr) -> bool:
    """Whether a syntax tree is a call of `window`."""
    return isinstance(tree, exp.Anonymous) and tree.name.lower() == _NAME


def bucketed(select: exp.Select, scope: Scope) -> Scope:
    """The rows with the bucket that a query asks for, whose start and end are now columns."""
    calls = [tree for tree in _own(select) if is_bucket(tree)]
    for tree in _own(select):
        if isinstance(tree, exp.Anonymous) and tree.name.lower() == "session_window":
            raise Unsupported(
                "session_window is not taken: one row may join two sessions into one",
                fragment=text_of(tree),
                hint="Use window(ts, '10 minutes'), or LAG to find where a session starts",
            )
    if not calls:
        return scope
    found = {_bucket(tree, scope) for tree in calls}
    if len(found) > 1:
        raise Unsupported("a query has one kind of time bucket", fragment=text_of(calls[-1]))
    (bucket,) = found
    node, start = _placed(scope.node, bucket)
    end = make("add_interval", start, Lit(0, INT), Lit(0, INT), Lit(bucket.length, BIGINT))
    columns = {"start": start, "end": end}
    below = scope.inner

    def inner(tree: exp.Expr) -> Expr | None:
        if isinstance(tree, exp.Dot) and is_bucket(tree.this):
            part = tree.expression.name.lower()
            if part in columns:
                return columns[part]
        if is_bucket(tree):
            raise Unsupported(
                "a time bucket is a pair of instants",
                fragment=text_of(tree),
                hint="Select window.start and window.end",
            )
        return None if below is None else below(tree)

    relations = (*scope.relations, Relation(_NAME, columns))
    return replace(scope, node=node, relations=relations, inner=inner)


def _own(select: exp.Select) -> list[exp.Expr]:
    """The syntax of a query without that of the queries inside it."""
    parts = [*select.expressions]
    others = (select.args.get(name) for name in ("group", "having", "qualify", "order"))
    parts += [other for other in others if other is not None]
    return [
        tree for part in parts for tree in part.walk(prune=lambda node: isinstance(node, exp.Query))
    ]


def _bucket(tree: exp.Expr, scope: Scope) -> _Bucket:
    if not 2 <= len(tree.expressions) <= 4:
        raise TypeMismatch(
            "window takes a time, a length, a slide and an offset", fragment=text_of(tree)
        )
    time = lower(tree.expressions[0], scope.leaf)
    if time.type != TIMESTAMP:
        raise TypeMismatch(f"window takes a TIMESTAMP, not {time.type}", fragment=text_of(tree))
    length, *rest = (_duration(part) for part in tree.expressions[1:])
    slide = rest[0] if rest else length
    offset = rest[1] if len(rest) > 1 else 0
    if not 0 < slide <= length:
        raise Unsupported(
            "the slide of a time bucket is above zero, and at most its length",
            fragment=text_of(tree),
        )
    if abs(offset) >= slide:
        raise Unsupported("the offset of a time bucket is below its slide", fragment=text_of(tree))
    if -(-length // slide) > MOST_COPIES:
        raise Unsupported(
            f"each row is in {-(-length // slide)} buckets",
            fragment=text_of(tree),
            hint=f"Take a longer slide: at most {MOST_COPIES} buckets overlap",
        )
    return _Bucket(time, length, slide, offset % slide)


def _duration(tree: exp.Expr) -> int:
    """The microseconds of `'1 hour 30 minutes'` or of an INTERVAL."""
    if isinstance(tree, exp.Interval):
        parts = [parts_of(tree)]
    elif isinstance(tree, exp.Literal) and tree.is_string:
        words = tree.name.lower().split()
        if words[:1] == ["interval"]:
            words = words[1:]
        if not words or len(words) % 2:
            raise _no_duration(tree)
        pairs = zip(words[::2], words[1::2], strict=True)
        try:
            parts = [
                parts_of(exp.Interval(this=exp.Literal.string(n), unit=exp.var(unit)))
                for n, unit in pairs
            ]
        except SqlError as error:
            raise _no_duration(tree) from error
    else:
        raise _no_duration(tree)
    if any(months for months, _, _ in parts):
        raise Unsupported(
            "a month has no fixed length",
            fragment=text_of(tree),
            hint="Group by date_trunc('month', ts)",
        )
    return sum(days * _DAY + micros for _, days, micros in parts)


def _no_duration(tree: exp.Expr) -> Unsupported:
    return Unsupported(
        "this is no length of time", fragment=text_of(tree), hint="Write it as '10 minutes'"
    )


def _placed(node: Node, bucket: _Bucket) -> tuple[Node, Expr]:
    """The rows, once for each bucket they are in, and the start of that bucket."""
    node = filtered(node, make("is_not_null", bucket.time))
    last = _start(bucket)
    copies = -(-bucket.length // bucket.slide)
    if copies == 1:
        return node, last
    types = {column.name: column.type for column in node.columns}
    name, copy = unused(f"bucket({last})", types), unused(_COPY, types)
    own = tuple(Named(column, Ref(column, type_)) for column, type_ in types.items())
    branches: list[Node] = []
    for place in range(copies):
        start = _start(bucket, place)
        rows = node
        if (place + 1) * bucket.slide > bucket.length:  # the earliest bucket may have ended
            left = Lit(bucket.length - place * bucket.slide, BIGINT)
            rows = filtered(rows, make("lt", _rest(bucket), left))
        made = (*own, Named(name, start), Named(copy, Lit(place, INT)))
        branches.append(Project(rows, made))
    return Union(tuple(branches), (copy, *node.row_key)), Ref(name, TIMESTAMP)


def _start(bucket: _Bucket, place: int = 0) -> Expr:
    """The start of the last bucket that a time is in, or of one so many places before it."""
    start = make("subtract", make("unix_micros", bucket.time), _rest(bucket))
    if place:
        start = make("subtract", start, Lit(place * bucket.slide, BIGINT))
    return make("timestamp_micros", start)


def _rest(bucket: _Bucket) -> Expr:
    """How long before a time the last bucket started that it is in."""
    # Made positive first, by whole slides, because of the times before 1970.
    positive = -(-_YEARS // bucket.slide) * bucket.slide - bucket.offset
    moved = make("add", make("unix_micros", bucket.time), Lit(positive, BIGINT))
    return make("remainder", moved, Lit(bucket.slide, BIGINT))
