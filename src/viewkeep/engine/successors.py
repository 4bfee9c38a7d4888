"""Views that replace others while those go on answering.

Law: at every published epoch a name stands for one view, whole: the old one up to some epoch, the
new one after it, and all that were replaced in one change go over at the same epoch.

A successor is kept like any view, under a name of its own, so loading it, its failure and what it
shares with others are nothing new. Views that a change takes away leave when its group takes its
names. Once an epoch is published with which its whole group is ready, the next plan does both;
readers follow the plan of the epoch that they read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from viewkeep.engine.programs import Failure, PlanVersion, load_plan, successor_name
from viewkeep.engine.revision import numbered, revise
from viewkeep.plan.program import Program
from viewkeep.stores.contract import Store

if TYPE_CHECKING:
    from viewkeep.engine.epochs import Published

_T = TypeVar("_T")


def take_names(store: Store, published: Published) -> None:
    """Have the groups of successors that are ready at the published epoch take their names."""
    program = load_plan(store, published.plan).program

    def change(plan: PlanVersion) -> PlanVersion | None:
        groups = _ready(plan, program, published.loading)
        return numbered(_with_names_taken(plan, groups)) if groups else None

    revise(store, change)


def _ready(plan: PlanVersion, program: Program, loading: Collection[str]) -> set[int]:
    """The groups of which the published program has every view, with nothing left to load."""
    groups = {*plan.leaving.values(), *(s.group for s in plan.successors.values())}
    for successor in plan.successors.values():
        placement = program.placements.get(successor.apart.name)
        known = placement is not None and placement.view == successor.apart
        if placement is None or not known or not placement.feeds.isdisjoint(loading):
            groups.discard(successor.group)
    return groups


def _with_names_taken(plan: PlanVersion, groups: Collection[int]) -> PlanVersion:
    views, generations, origins = dict(plan.views), dict(plan.generations), dict(plan.origins)
    taken = {name: s for name, s in plan.successors.items() if s.group in groups}
    for name, successor in taken.items():
        if (origin := plan.origin(name)) is not None:
            origins[name] = origin
        views[name], generations[name] = successor.view, successor.generation
    left = {name for name, group in plan.leaving.items() if group in groups}
    changed = taken.keys() | left
    return replace(
        plan,
        views=_without(views, left),
        generations=_without(generations, left),
        origins=_without(origins, left),
        failed=_without(plan.failed, changed),
        repairs=_without(plan.repairs, changed),
        unreadable=_without(plan.unreadable, changed),
        successors=_without(plan.successors, taken),
        leaving=_without(plan.leaving, left),
    )


def completed(plan: PlanVersion) -> PlanVersion:
    """The plan as it will be when all successors have taken their names."""
    groups = {*plan.leaving.values(), *(s.group for s in plan.successors.values())}
    return numbered(_with_names_taken(plan, groups)) if groups else plan


def before_replacement(newest: PlanVersion, read: PlanVersion) -> PlanVersion:
    """The newest plan, with the views of an older one that have been replaced since.

    A view that was dropped and created anew is another one, and not among them.
    """
    views = {
        name: read.views[name]
        for name in newest.views.keys() & read.views.keys()
        if read.generations[name] != newest.generations[name]
        and read.origin(name) == newest.origin(name)
    }
    if not views:
        return newest
    generations = {name: read.generations[name] for name in views}
    shown = replace(
        newest,
        views={**newest.views, **views},
        generations={**newest.generations, **generations},
    )
    return shown.compiled(newest.program)


def given_up(plan: PlanVersion, failures: Mapping[str, Failure]) -> PlanVersion:
    """The plan without the groups of successors of which one has failed, all marked as failed.

    `failures` are by the names that successors have while they are loaded.
    """
    groups = {s.group: s.apart.name for s in plan.successors.values() if s.apart.name in failures}
    lost = {name: s for name, s in plan.successors.items() if s.group in groups}
    failed = dict(plan.failed)
    for name, successor in lost.items():
        own = failures.get(successor.apart.name)
        other = groups[successor.group]
        cause = failures[other]
        failed[successor_name(name)] = own or Failure(
            cause.epoch, time.time_ns(), f"it was to come with {other}, which failed"
        )
    stay = [name for name, group in plan.leaving.items() if group in groups]
    return replace(
        plan,
        failed=failed,
        successors=_without(plan.successors, lost),
        leaving=_without(plan.leaving, stay),
    )


def _without(items: Mapping[str, _T], names: Iterable[str]) -> dict[str, _T]:
    left = dict(items)
    for name in names:
        left.pop(name, None)
    return left
