"""Runs epochs in both lanes and compares what they write, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from viewkeep.engine.epochs import OpenEpoch
from viewkeep.engine.local import run_epoch
from viewkeep.engine.programs import load_plan
from viewkeep.engine.report import Report
from viewkeep.engine.rows import epoch as rows_lane
from viewkeep.stores.contract import StateWrite, Store

Written = dict[tuple[int, int, bytes], bytes | None]  # shard, table, key -> row


def in_both_lanes(store: Store, epoch: OpenEpoch, tasks: int, random: Random) -> list[Report]:
    """Run an open epoch in one lane, then in the other; the reports of the one that is last."""
    lanes = [True, False]
    random.shuffle(lanes)
    written: dict[bool, Written] = {}
    reports: list[Report] = []
    for rows in lanes:
        written[rows], reports = _recorded(store, epoch, tasks, rows)
    if written[True] != written[False]:
        raise AssertionError(_difference(store, epoch, written[True], written[False]))
    return reports


def _recorded(
    store: Store, epoch: OpenEpoch, tasks: int, rows: bool
) -> tuple[Written, list[Report]]:
    found: Written = {}
    apply = store.state.apply

    def record(shard: int, number: int, horizon: int, writes: Sequence[StateWrite]) -> Any:
        for write in writes:
            for key, row in zip(write.key_list, write.rows, strict=True):
                found[shard, write.table, key] = row
        return apply(shard, number, horizon, writes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.state, "apply", record)
        if not rows:
            patch.setattr(rows_lane, "FEW", -1)
        reports = run_epoch(store, epoch, tasks=tasks)
    return found, reports


def _difference(store: Store, epoch: OpenEpoch, rows: Written, columns: Written) -> str:
    tables = {
        table.number: (operator, table)
        for operator in load_plan(store, epoch.plan).program.operators
        for table in operator.tables
    }
    lines = []
    for place in sorted(rows.keys() | columns.keys()):
        one, other = rows.get(place, b"nothing"), columns.get(place, b"nothing")
        if one != other:
            operator, table = tables[place[1]]
            is_page = table.purpose.startswith("values of ")
            shown = [
                row if is_page or row in (None, b"nothing") else table.row_codec.decode_one(row)
                for row in (one, other)
            ]
            kind = f"{type(operator.node).__name__} {table.purpose}"
            lines.append(f"{kind} {place}:\n  rows    {shown[0]}\n  columns {shown[1]}")
    return "the lanes differ\n" + "\n".join(lines[:10])
