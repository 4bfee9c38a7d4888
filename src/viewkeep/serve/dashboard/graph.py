"""The plan as a graph: base tables and operators as nodes, feeds and reads as edges.

Law: every producer of a node that is shown is shown too, and no more than `limit` nodes are: where
the plan is larger, whole views are left out, and the answer says how many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import nlargest
from typing import Any

from viewkeep.database import Database
from viewkeep.engine.costs import read_costs
from viewkeep.engine.programs import successor_name
from viewkeep.plan.explain import title
from viewkeep.plan.nodes import Source, Values
from viewkeep.plan.program import Operator, Placement, Program, StateTable, producer_id
from viewkeep.serve.dashboard.rates import rows_of, size_of
from viewkeep.serve.dashboard.titles import Titles
from viewkeep.stores.contract import Sizes, TableSize

MOST_NODES = 300
_MOST_USERS = 50  # views named at a node
_MOST_FIGURES = 1_000  # operators whose figures are sent at each epoch


def graph_of(
    db: Database,
    rates: Mapping[str, float | None],
    view: str | None = None,
    limit: int = MOST_NODES,
) -> dict[str, Any]:
    """The part of the plan that `view` stands on, or all of it."""
    plan, sizes = db.catalog.current(), db.store.sizes()
    program = plan.program
    names = sorted(program.placements)
    if view is not None:  # with what will replace it; one that failed has no operators
        names = [name for name in (view, successor_name(view)) if name in program.placements]
    shown, left_out = _chosen(program, names, limit)
    users = _users(program)
    operators = [operator for operator in program.operators if operator.id in shown]
    sources = _sources(operators)
    constants = _constants(operators)
    zones = _zones(operators)
    results = _results(program)
    short, costs = Titles(program).short, _shares(db, program)
    nodes = [_table_node(source, program, users) for source in sources]
    if view is None:  # a table that no view reads is still a table
        read = {source.table for source in sources}
        idle = [plan.tables[name] for name in sorted(plan.tables) if name not in read]
        nodes += [_table_node(source, program, users) for source in idle]
    nodes += [_values_node(values) for values in constants]
    nodes += [
        _operator_node(
            operator,
            short,
            zones[operator.id],
            sizes,
            rates.get(operator.id),
            costs.get(operator.id),
            users.get(operator.id, ()),
            results.get(operator.id, ()),
        )
        for operator in operators
    ]
    return {
        "plan": plan.version,
        "levels": program.levels,
        "nodes": nodes,
        "edges": [edge for operator in operators for edge in _edges(operator)],
        "total": len(program.operators) + len(program.sources),
        "views": len(program.placements),
        "left_out": left_out,
    }


def figures_of(db: Database, rates: Mapping[str, float | None]) -> dict[str, list[float | None]]:
    """Rows, bytes, rows a second and cost of operators with state, of very many the largest."""
    sizes, costs = db.store.sizes(), _shares(db, db.catalog.current().program)
    held = [operator for operator in db.catalog.current().program.operators if operator.tables]
    if len(held) > _MOST_FIGURES:
        held = nlargest(_MOST_FIGURES, held, key=lambda operator: size_of(operator, sizes).bytes)
    return {
        operator.id: [
            rows_of(operator, sizes),
            size_of(operator, sizes).bytes,
            rates.get(operator.id),
            costs.get(operator.id),
        ]
        for operator in held
    }


def _shares(db: Database, program: Program) -> dict[str, float]:
    """Each operator's share of the processor time of all that are in the plan."""
    spent = read_costs(db.store).operators
    here = {op.id: spent[op.id][0] for op in program.operators if op.id in spent}
    whole = sum(here.values())
    return {name: seconds / whole for name, seconds in here.items()} if whole else {}


def _chosen(program: Program, names: Iterable[str], limit: int) -> tuple[set[str], int]:
    """The operators of as many views as fit, and how many views did not."""
    shown: set[str] = set()
    left_out = 0
    for name in names:
        more = program.placements[name].operators - shown
        if shown and len(shown) + len(more) > limit:
            left_out += 1
        else:
            shown |= more
    return shown, left_out


def _users(program: Program) -> dict[str, list[str]]:
    """The views that stand on each operator and base table, by name."""
    users: dict[str, list[str]] = {}
    for name in sorted(program.placements):
        for below in _standing(program, program.placements[name]):
            users.setdefault(below, []).append(name)
    return users


def _standing(program: Program, placement: Placement) -> set[str]:
    found = set(placement.operators)
    for operator in placement.operators:
        found |= {producer_id(feed.producer) for feed in program.by_id[operator].feeds}
    return found


def _results(program: Program) -> dict[str, list[str]]:
    """Whose rows an operator's first table is, by operator."""
    owner = {table.number: op.id for op in program.operators for table in op.tables}
    found: dict[str, list[str]] = {}
    for name in sorted(program.placements):
        found.setdefault(owner[program.placements[name].table.number], []).append(name)
    return found


def _sources(operators: Iterable[Operator]) -> list[Source]:
    feeds = (feed for operator in operators for feed in operator.feeds)
    found = {p.table: p for feed in feeds if isinstance(p := feed.producer, Source)}
    return [found[name] for name in sorted(found)]


def _constants(operators: Iterable[Operator]) -> list[Values]:
    feeds = (feed for operator in operators for feed in operator.feeds)
    return list({p.id: p for feed in feeds if isinstance(p := feed.producer, Values)}.values())


def _zones(operators: Collection[Operator]) -> dict[str, str]:
    """For each operator the name of its zone in its level.

    Operators of a level are in one zone if their state is spread by the same columns, or if one
    hands rows to the other in memory.
    """
    leader = {operator.id: operator.id for operator in operators}

    def find(one: str) -> str:
        while leader[one] != one:
            one = leader[one]
        return one

    by_columns: dict[tuple[int, tuple[str, ...]], str] = {}
    levels = {operator.id: operator.level for operator in operators}
    for operator in operators:
        first = by_columns.setdefault((operator.level, operator.zone), operator.id)
        leader[find(operator.id)] = find(first)
        near = [f.producer for f in operator.feeds if f.local and isinstance(f.producer, str)]
        for producer in [*near, *(port.producer for port in operator.ports)]:
            if levels.get(producer) == operator.level:
                leader[find(operator.id)] = find(producer)
    return {operator.id: find(operator.id) for operator in operators}


def _table_node(
    source: Source, program: Program, users: Mapping[str, Collection[str]]
) -> dict[str, Any]:
    name = producer_id(source)
    standing = list(users.get(name, ()))
    return {
        "id": name,
        "kind": "table",
        "level": 0,
        "title": source.table,
        "what": f"base table, key ({', '.join(source.row_key)})",
        "zone": None,
        "columns": [],
        "rows": None,
        "bytes": None,
        "rate": None,
        "cost": None,
        "users": standing[:_MOST_USERS],
        "shared": len(standing),
        "results": [],
        "tables": [],
    }


def _values_node(values: Values) -> dict[str, Any]:
    return {
        "id": producer_id(values),
        "kind": "values",
        "level": 0,
        "title": "VALUES",
        "what": f"{len(values.rows)} rows that a query writes itself",
        "zone": None,
        "columns": [],
        "rows": len(values.rows),
        "bytes": None,
        "rate": None,
        "cost": None,
        "users": [],
        "shared": 0,
        "results": [],
        "tables": [],
    }


def _operator_node(
    operator: Operator,
    short: Callable[[str], str],
    zone: str,
    sizes: Sizes,
    rate: float | None,
    cost: float | None,
    users: Collection[str],
    results: Collection[str],
) -> dict[str, Any]:
    size = size_of(operator, sizes)
    what = short(title(operator))
    named = list(users)
    return {
        "id": operator.id,
        "kind": operator.node.drawn_as,
        "level": operator.level,
        "title": ", ".join(results) or what,
        "what": what,
        "zone": zone,
        "columns": [short(name) for name in operator.zone],
        "rows": rows_of(operator, sizes) if operator.tables else None,
        "bytes": size.bytes if operator.tables else None,
        "rate": rate,
        "cost": cost,
        "users": named[:_MOST_USERS],
        "shared": len(named),
        "results": list(results),
        "tables": [_state(table, short, sizes) for table in operator.tables],
    }


def _state(table: StateTable, short: Callable[[str], str], sizes: Sizes) -> dict[str, Any]:
    size = sizes.tables.get(table.number, TableSize())
    key = [part.name + (" DESC" if part.descending else "") for part in table.key]
    return {
        "number": table.number,
        "purpose": short(table.purpose),
        "key": [short(name) for name in key],
        "rows": size.rows,
        "bytes": size.bytes,
    }


def _edges(operator: Operator) -> list[dict[str, Any]]:
    fed = [
        {"from": producer_id(feed.producer), "to": operator.id, "moved": not feed.local}
        for feed in operator.feeds
    ]
    read = [{"from": port.producer, "to": operator.id, "moved": False} for port in operator.ports]
    return fed + read
