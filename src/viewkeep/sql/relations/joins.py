"""Joins on any condition, made of the joins that plans have: matches and nothing else.

Law: `joined` gives the rows that SQL asks for, with the columns of both sides under their own
names. A condition of one side is a Filter there where that means the same; what reads both sides
and is no equation is checked over the inner join, whose rows are then the partners.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from viewkeep import interrupts
from viewkeep.expr import Call, Expr, Lit, Ref, references, unused
from viewkeep.plan.conditions import TRUE, conjunction, conjuncts, disjunction, rewritten
from viewkeep.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    Match,
    Named,
    Node,
    Project,
    Union,
)
from viewkeep.sql.expressions.canonical import make
from viewkeep.sql.expressions.outer_references import has_outer
from viewkeep.sql.relations.columns import filtered
from viewkeep.types import BOOLEAN, INT, Column

BRANCH = "#branch"
# `value < some partner` if it is below the largest, and so on.
_EXTREMES = {"lt": ("max",), "le": ("max",), "gt": ("min",), "ge": ("min",), "ne": ("max", "min")}
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def joined(kind: str, left: Node, right: Node, parts: Iterable[Expr]) -> Node:
    """The join of two nodes, `inner`, `left`, `full`, `semi` or `anti`, on all of some conditions.

    The names of both sides differ, and the conditions are over them.
    """
    parts = list(parts)
    if kind == "full":
        return _full(left, right, parts)
    ours, theirs = names_of(left), names_of(right)
    on: list[Match] = []
    mixed: list[Expr] = []
    of_left: list[Expr] = []
    of_right: list[Expr] = []
    for part in parts:
        match, read = match_of(part, ours, theirs), set(references(part))
        if match is not None:
            on.append(match)
        elif read and read <= theirs and (kind == "inner" or not has_outer(part)):
            of_right.append(part)
        elif read <= ours and (kind in ("inner", "semi") or not has_outer(part)):
            of_left.append(part)
        else:
            mixed.append(part)
    right = where(right, of_right)
    if kind in ("inner", "semi"):
        left = where(left, of_left)
    else:
        # A row of the left for which this is not true has no partner, but it stays.
        on += [Match(part, TRUE) for part in of_left]
    on.sort(key=str)
    if kind == "inner":
        return where(Join("inner", left, right, tuple(on)), mixed)
    if mixed:
        made = _by_extremes(kind, left, right, on, mixed)
        if made is not None:
            return made
        partners = where(Join("inner", left, right, tuple(on)), mixed)
        right, on = _under_copies(left, right, partners, kind == "left")
    return Join(kind, left, right, tuple(on))


def match_of(part: Expr, ours: set[str], theirs: set[str]) -> Match | None:
    """The match that a condition is, if it equates an expression of each side."""
    if not isinstance(part, Call) or part.function not in ("eq", "null_safe_eq"):
        return None
    if has_outer(part):
        return None
    safe = part.function == "null_safe_eq"
    first, second = part.args
    one, other = set(references(first)), set(references(second))
    if not one or not other:
        return None
    if one <= ours and other <= theirs:
        return Match(first, second, safe)
    if one <= theirs and other <= ours:
        return Match(second, first, safe)
    return None


def where(node: Node, parts: Sequence[Expr]) -> Node:
    """The rows for which conditions hold, chosen below a Project that only names columns."""
    if not parts:
        return node
    condition = conjunction(parts)
    if isinstance(node, Project) and _passes(node, condition):
        meaning = {out.name: out.expr for out in node.outputs}
        return Project(filtered(node.input, rewritten(condition, meaning)), node.outputs)
    return filtered(node, condition)


def _passes(node: Node, condition: Expr) -> bool:
    """Whether a condition reads columns that a Project only names."""
    if not isinstance(node, Project):
        return False
    named = {out.name for out in node.outputs if isinstance(out.expr, Ref)}
    return named.issuperset(references(condition))


def conditions_of(expr: Expr) -> list[Expr]:
    """The conditions of a conjunction, and those that all sides of an OR share."""
    found: dict[Expr, None] = {}
    for part in conjuncts(expr):
        found[part] = None
        if isinstance(part, Call) and part.function == "or":
            first, *rest = (dict.fromkeys(conjuncts(side)) for side in part.args)
            shared = [c for c in first if all(c in side for side in rest)]
            found |= dict.fromkeys(shared)
            if shared:
                kept = [conjunction(c for c in conjuncts(s) if c not in shared) for s in part.args]
                del found[part]
                found[disjunction(kept)] = None
    found.pop(TRUE, None)
    return list(found)


def inner_joined(units: Sequence[Node], parts: Sequence[Expr]) -> Node:
    """The inner join of any number of nodes on conditions over them all, in an order that matches.

    The next node is the first that an equation connects with those before, else the first.
    """
    left = list(units)
    rest: list[Expr] = []
    own: list[list[Expr]] = [[] for _ in units]
    names = [names_of(unit) for unit in units]
    for part in parts:
        read = set(references(part))
        home = [i for i, inside in enumerate(names) if read and read <= inside]
        if home and not has_outer(part):
            own[home[0]].append(part)
        else:
            rest.append(part)
    for i, mine in enumerate(own):
        # Those that can stand below a Project do, whatever else is asked for.
        below = dict.fromkeys(part for part in mine if _passes(left[i], part))
        left[i] = where(left[i], list(below))
        left[i] = where(left[i], [part for part in mine if part not in below])
    made = left.pop(0)
    while left:
        interrupts.check()
        ours = names_of(made)
        connected = [
            i
            for i, unit in enumerate(left)
            if any(match_of(part, ours, names_of(unit)) for part in rest)
        ]
        following = left.pop(connected[0] if connected else 0)
        within = ours | names_of(following)
        ready = [part for part in rest if set(references(part)) <= within and references_any(part)]
        rest = [part for part in rest if part not in ready]
        made = joined("inner", made, following, ready)
    return where(made, rest)


def references_any(part: Expr) -> bool:
    """Whether an expression reads any column."""
    return next(references(part), None) is not None


def names_of(node: Node) -> set[str]:
    """The names of a node's columns."""
    return {column.name for column in node.columns}


def ref(column: Column) -> Ref:
    """The value of a column of a node."""
    return Ref(column.name, column.type)


def refs(node: Node) -> dict[str, Ref]:
    """The columns of a node by name."""
    return {column.name: ref(column) for column in node.columns}


def copied_key(node: Node, taken: Iterable[str]) -> dict[str, str]:
    """Another name for each column of a node's row key, none of them taken."""
    used, copies = set(taken), dict[str, str]()
    for name in node.row_key:
        copies[name] = unused(f"#{name}", used)
        used.add(copies[name])
    return copies


def key_matches(node: Node, copies: dict[str, str]) -> list[Match]:
    """Matches of a node's row key with copies of it."""
    own = refs(node)
    return [Match(own[k], Ref(copies[k], own[k].type), True) for k in node.row_key]


def _by_extremes(
    kind: str, left: Node, right: Node, on: Sequence[Match], mixed: Sequence[Expr]
) -> Node | None:
    """A semi- or anti-join on one comparison beside matches: the extremes of the partners tell.

    Some partner is larger than a value if the largest is; some differs if an extreme does.
    """
    ours, theirs = names_of(left), names_of(right)
    part = mixed[0]
    if kind not in ("semi", "anti") or len(mixed) > 1 or has_outer(part):
        return None
    if not isinstance(part, Call) or part.function not in _EXTREMES:
        return None
    function, (value, inner) = part.function, part.args
    if set(references(value)) <= theirs:
        function, value, inner = _MIRRORED.get(function, function), inner, value
    pure = set(references(value)) <= ours and set(references(inner)) <= theirs
    if not pure or inner.type.is_array or inner.type == BOOLEAN:
        return None
    names = {match.right: unused(str(match.right), ours) for match in on}
    calls = [
        AggregateCall(unused(f"{name}({inner})", {*ours, *names.values()}), name, inner, inner.type)
        for name in _EXTREMES[function]
    ]
    groups = Aggregate(right, tuple(Named(n, e) for e, n in names.items()), tuple(calls))
    matches = tuple(Match(m.left, Ref(names[m.right], m.right.type), m.null_safe) for m in on)
    found = disjunction(make(function, value, Ref(call.name, call.type)) for call in calls)
    if kind == "semi":
        return where(Join("inner", left, groups, matches), [found])
    return where(Join("left", left, groups, matches), [make("not", make("is_true", found))])


def _under_copies(left: Node, right: Node, partners: Node, shows: bool) -> tuple[Node, list[Match]]:
    """The pairs of an inner join as the right side of another join of the same left rows."""
    copies = copied_key(left, names_of(left) | names_of(right))
    own, theirs = refs(left), refs(right)
    outputs = [Named(copies[k], own[k]) for k in left.row_key]
    kept = theirs if shows else {k: theirs[k] for k in right.row_key}
    outputs += [Named(name, expr) for name, expr in kept.items()]
    if not outputs:  # one row at most on both sides
        outputs.append(Named("#any", TRUE))
    return Project(partners, tuple(outputs)), key_matches(left, copies)


def _full(left: Node, right: Node, parts: list[Expr]) -> Node:
    """The left join, and the rows of the right without a partner."""
    branch = unused(BRANCH, names_of(left) | names_of(right))
    ours, theirs = refs(left), refs(right)
    both = joined("left", left, right, parts)
    alone = joined("anti", right, left, parts)
    # The copies of row keys that a join may have made are not rows of the right alone.
    extra = {n: r for n, r in refs(both).items() if n not in ours and n not in theirs}
    absent = {name: Lit(None, expr.type) for name, expr in (ours | extra).items()}

    def side(node: Node, place: int, columns: dict[str, Expr]) -> Node:
        outputs = [Named(branch, Lit(place, INT)), *(Named(n, e) for n, e in columns.items())]
        return Project(node, tuple(sorted(outputs, key=lambda out: out.name)))

    first = side(both, 0, {**ours, **theirs, **extra})
    second = side(alone, 1, {**absent, **theirs})
    key = (branch, *left.row_key, *right.row_key)
    return Union((first, second), tuple(dict.fromkeys(key)))
