"""The code that the rows lane runs for views: what `viewkeep explain --code` prints.

Operator by operator, producers first: the functions that put rows into it, then its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from viewkeep.engine.operators import Fed
from viewkeep.engine.rows.lane import Lane, RowFeed
from viewkeep.plan.explain import title
from viewkeep.plan.nodes import CellSource, Source, Values
from viewkeep.plan.operators import Operator, OperatorFeed, producer_id
from viewkeep.plan.program import Program


def code(program: Program, names: Collection[str]) -> str:
    """The generated functions of these views as Python source."""
    lane = Lane(program)
    wanted = {name for view in names for name in program.placements[view].operators}
    operators = [operator for operator in program.operators if operator.id in wanted]
    return "\n\n".join("\n".join(_operator(lane, operator)) for operator in operators)


def _operator(lane: Lane, operator: Operator) -> Iterator[str]:
    executor = lane.executor(operator.id)
    yield f"# {title(operator)}"
    if not executor.has_rows:
        yield "# runs in the columns lane: it has no row form"
    for feed in operator.feeds:
        yield ""
        yield f"# input from {_producer(lane.program, feed)}"
        if isinstance(feed.producer, Values):
            yield "# constants, which are loaded once"
            continue
        if isinstance(feed.producer, CellSource):
            yield "# operations on cells, which are merged"
            continue
        assert isinstance(executor, Fed)
        row_feed = RowFeed(lane.shape(producer_id(feed.producer)), feed, executor)
        yield row_feed.source or "# takes the columns lane: a step of it has no row form"
    for place, port in enumerate(operator.ports):
        below = title(lane.program.by_id[port.producer])
        yield ""
        yield f"# reads {below}"
        source = lane.port_source(operator.id, place)
        if source:
            yield source
    for name, source in executor.code():
        yield ""
        yield f"# {name}"
        yield source


def _producer(program: Program, feed: OperatorFeed) -> str:
    if isinstance(feed.producer, Source):
        return f"table {feed.producer.table}"
    if isinstance(feed.producer, Values):
        return "values in the query"
    return title(program.by_id[feed.producer])
