"""Views written again, from their own SQL, because a view that they read has become another.

Law: a view is a function of its SQL and of what the names in it stand for; `reads` has these names.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from viewkeep.access.definitions import create_view, in_order
from viewkeep.engine.programs import PlanVersion
from viewkeep.errors import CatalogError, SqlError
from viewkeep.plan.nodes import View
from viewkeep.plan.share_groups import Existing
from viewkeep.sql.parse.syntax import parse
from viewkeep.sql.relations.scope import Resolve
from viewkeep.sql.statements import nodes as st
from viewkeep.sql.statements.analyse import analyse


def newest_views(plan: PlanVersion) -> dict[str, View]:
    """What each view will be: as it is, or as the successor that is being loaded."""
    return {**plan.views, **{name: s.view for name, s in plan.successors.items()}}


def readers_again(
    wanted: st.CreateView, basis: PlanVersion, resolve: Resolve
) -> list[st.CreateView]:
    """The views that read one that is replaced, directly or not, written over the new one."""
    newest = newest_views(basis)
    if not wanted.or_replace or newest.get(wanted.view.name) in (None, wanted.view):
        return []
    made, again = {wanted.view.name: wanted.view}, list[st.CreateView]()
    for view in in_order(newest.values()):
        if view.name in made or made.keys().isdisjoint(view.reads):
            continue
        statement = written_again(
            view, made, lambda name: made.get(name) or resolve(name), basis.program.existing
        )
        made[view.name] = statement.view
        again.append(statement)
    return again


def written_again(
    view: View, changed: Collection[str], resolve: Resolve, existing: Existing
) -> st.CreateView:
    """A view by its own SQL, over those that it reads and that have changed."""
    try:
        (tree,) = parse(create_view(view))
        statement = analyse(tree, resolve, existing)
    except SqlError as error:
        below = ", ".join(name for name in view.reads if name in changed)
        raise CatalogError(
            f"{view.name} reads {below} and cannot be kept over the new one: {error}. "
            "Change both together: viewkeep apply"
        ) from error
    assert isinstance(statement, st.CreateView)
    return replace(statement, or_replace=True, if_not_exists=False)
