"""Views that fail are set aside, so that all others go on; and what has failed lately, on record.

Law: setting views aside changes no row of any other view. The plan version that marks them lacks
the operators that they alone stand on; the open epoch is abandoned, so that the next one runs
without them. Repairing them gives those operators new state tables, which are loaded from the base.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from viewkeep.engine.blame import views_on
from viewkeep.engine.epochs import Epochs, OpenEpoch
from viewkeep.engine.programs import Failure, PlanVersion, newest_plan
from viewkeep.engine.revision import numbered, revise
from viewkeep.engine.successors import given_up
from viewkeep.errors import StoreError
from viewkeep.stores.contract import Store
from viewkeep.stores.contract.records import record_from

_RECORD = "failures"


def leave_out(
    store: Store, term: int, epoch: OpenEpoch, culprits: Mapping[str, str]
) -> tuple[str, ...]:
    """Set aside the views that stand on the culprits, and give the open epoch up.

    `culprits` are operators (or `table:NUMBER`) and why each fails. Returns the views' names.
    """
    views = set_aside(store, epoch.epoch, culprits)
    Epochs(store).abandon(term, epoch)
    return views


def set_aside(store: Store, epoch: int, culprits: Mapping[str, str]) -> tuple[str, ...]:
    """Mark the views that stand on the culprits as failed at an epoch; who is marked stays so."""
    marked: dict[str, Failure] = {}

    def change(plan: PlanVersion) -> PlanVersion | None:
        marked.clear()
        for name, reason in culprits.items():
            views = views_on(plan.program, name)
            failing = views | plan.failed.keys()
            for view in sorted(views - marked.keys()):
                marked[view] = Failure(epoch, time.time_ns(), _why(plan, view, failing, reason))
        return without(plan, marked) if marked else None

    revise(store, change)
    return tuple(marked)


def without(plan: PlanVersion, failures: Mapping[str, Failure]) -> PlanVersion:
    """The plan with these views marked as failed; what was to replace others is given up."""
    left = given_up(plan, failures)
    return numbered(replace(left, failed={**left.failed, **failures}))


def _why(plan: PlanVersion, view: str, failing: Collection[str], reason: str) -> str:
    """Why a view fails: by itself, or because of views that it reads."""
    roots, seen, todo = list[str](), set[str](), [view]
    while todo:
        name = todo.pop()
        named = plan.views.get(name) or plan.program.placements[name].view
        below = [read for read in named.reads if read in failing and read != name]
        if not below and name != view:
            roots.append(name)
        todo += [read for read in below if read not in seen]
        seen.update(below)
    if not roots:
        return reason
    return f"it reads {', '.join(sorted(set(roots)))}, which failed: {reason}"


@dataclass(frozen=True)
class Trouble:
    """Epochs have failed since the last one was published, or the driver ended."""

    after: int  # the published epoch
    count: int  # failures since
    reason: str  # of the last one
    at: int  # when that was, in nanoseconds since 1970
    retry_at: int = 0  # when the driver tries again, if it waits


def note_trouble(store: Store, reason: str, pause: float = 0.0, count: int = 1) -> Trouble:
    """Count a failure, or only say what comes after it (`count` 0)."""
    while True:
        raw = store.meta.get(_RECORD)
        published = Epochs(store).read().published.epoch
        known = _trouble(raw)
        before = known.count if known is not None and known.after == published else 0
        now = time.time_ns()
        noted = Trouble(published, before + count, reason, now, now + int(pause * 1e9))
        if store.meta.cas(_RECORD, raw, json.dumps(asdict(noted)).encode()):
            return noted


def trouble_of(store: Store) -> Trouble | None:
    """What has failed since the last epoch was published, if anything has."""
    known = _trouble(store.meta.get(_RECORD))
    if known is None or known.after != Epochs(store).read().published.epoch:
        return None
    return known


def forget_trouble(store: Store) -> None:
    """All is well again."""
    with suppress(StoreError):  # it is only a note
        raw = store.meta.get(_RECORD)
        if raw is not None:
            store.meta.cas(_RECORD, raw, None)


def is_outdated(store: Store, epoch: OpenEpoch) -> bool:
    """Whether an open epoch has another plan than a new one would have."""
    return newest_plan(store).version != epoch.plan


def _trouble(raw: bytes | None) -> Trouble | None:
    return None if raw is None else record_from(Trouble, json.loads(raw))
