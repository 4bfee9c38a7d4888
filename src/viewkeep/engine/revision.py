"""Changes of the plan: each makes the version after the newest one, all or nothing.

Law: a state table keeps its number for as long as some plan in a row needs it; a number that was
given up is never used again, so a table that is needed anew starts empty and is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

from viewkeep.engine.programs import PlanVersion, commit_plan, newest_plan
from viewkeep.plan.nodes import View
from viewkeep.plan.program import Program, compile_program, extend_program, state_keys
from viewkeep.stores.contract import Cut, Store

DROPPED = "dropped"  # the record of tables that are to be removed

Change = Callable[[PlanVersion], PlanVersion | None]


def revise(store: Store, change: Change) -> None:
    """Apply a change to the newest plan until no other writer got in between."""
    while True:
        old = newest_plan(store)
        changed = change(old)
        if changed is None:
            return
        new = replace(changed, version=old.version + 1)
        if changed.is_compiled:
            new.compiled(changed.program)
        states = sorted(old.state_numbers - new.state_numbers)
        tables = sorted(old.table_numbers - new.table_numbers)
        # First, so that whoever dies in between leaves nothing behind that nobody would remove.
        if states or tables:
            _note_dropped(store, new.version, states, tables)
        if commit_plan(store, new):
            return


def begin_repairs(store: Store, cut: Cut) -> None:
    """Keep repaired views again once a published cut covers all that was written before repair.

    So they are loaded from rows as they were then, and not from rows that have been corrected.
    """

    def change(plan: PlanVersion) -> PlanVersion | None:
        left = {name: wanted for name, wanted in plan.repairs.items() if not cut.covers(wanted)}
        return numbered(replace(plan, repairs=left)) if len(left) < len(plan.repairs) else None

    revise(store, change)


def _note_dropped(store: Store, version: int, states: list[int], tables: list[int]) -> None:
    """Remember state and base tables that plan `version` is not to have, to remove them later.

    That plan may never be made: who removes them asks the plans that are kept.
    """
    while True:
        raw = store.meta.get(DROPPED)
        noted = json.loads(raw) if raw else []
        noted.append({"version": version, "states": states, "tables": tables})
        if store.meta.cas(DROPPED, raw, json.dumps(noted).encode()):
            return


def numbered(plan: PlanVersion) -> PlanVersion:
    """The plan with a number for each state table it needs, and none for others."""
    # Nobody knows which tables are those of an unreadable view.
    numbers: dict[str, int] = dict(plan.numbers) if plan.unreadable else {}

    def compile_all(number: Callable[[str], int]) -> Program:
        return compile_program(plan.kept_views, number, plan.tables.values())

    return _with_numbers(plan, numbers, compile_all)


def extended(plan: PlanVersion, before: PlanVersion, added: Iterable[View]) -> PlanVersion:
    """The plan, which only has more views than the one before, with numbers for their tables."""
    program = before.program if before.is_compiled else None

    def compile_added(number: Callable[[str], int]) -> Program | None:
        if program is not None:
            return extend_program(program, added, number)
        for key in state_keys(added):
            number(key)
        return None

    return _with_numbers(plan, dict(plan.numbers), compile_added)


def _with_numbers(
    plan: PlanVersion,
    numbers: dict[str, int],
    compiled: Callable[[Callable[[str], int]], Program | None],
) -> PlanVersion:
    following = plan.next_number

    def number(key: str) -> int:
        nonlocal following
        if key not in numbers:
            if key in plan.numbers:
                numbers[key] = plan.numbers[key]
            else:
                numbers[key] = following
                following += 1
        return numbers[key]

    program = compiled(number)
    made = replace(plan, numbers=numbers, next_number=following)
    return made if program is None else made.compiled(program)
