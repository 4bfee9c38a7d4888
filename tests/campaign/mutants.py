"""Breaks the code on purpose, one line at a time, to see that the campaign finds it.

`python -m tests.campaign.mutants [NAME ...]` copies the sources, changes one place, and plays
rounds until one has a finding. The exit code is 1 if a mutant lives through all of them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 500
SPECIAL_ROUNDS = 40


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `old` must stand there exactly once."""

    name: str
    file: str
    old: str
    new: str
    flag: str = ""  # --processes or --threads, if only such rounds can show it


MUTANTS = (
    Mutant(
        "no-redo",
        "stores/lmdb/write.py",
        "redo.save(nodes, first, staged[first].txn, changed)",
        "pass",
    ),
    Mutant(
        "redo-not-completed",
        "stores/lmdb/redo.py",
        "        apply_part(node, txn, part)\n",
        "",
    ),
    Mutant(
        "publish-without-term",
        "engine/epochs.py",
        "        self._check(record, term)\n        if record.open is None and",
        "        if record.open is None and",
    ),
    Mutant(
        "horizon-ignores-pins",
        "engine/housekeeping.py",
        "horizon = oldest.epoch",
        "horizon = published.epoch",
    ),
    Mutant(
        "sweep-past-the-published-epoch",
        "engine/housekeeping.py",
        "horizon = oldest.epoch",
        "horizon = published.epoch + 1",
    ),
    Mutant(
        "log-truncated-under-pins",
        "engine/housekeeping.py",
        "store.log.truncate(oldest.cut, budget)",
        "store.log.truncate(published.cut, budget)",
    ),
    Mutant(
        "feed-resumes-an-epoch-early",
        "access/feeds/feed.py",
        "        return place\n",
        "        return place._replace(position=FeedPosition(position.epoch - 1))\n",
    ),
    Mutant(
        "feed-resumes-at-the-next-epoch",
        "access/feeds/feed.py",
        "        return place\n",
        "        return place._replace(position=FeedPosition(epoch + (len(parts) == 6)))\n",
    ),
    Mutant(
        "abandoned-epochs-stay",
        "engine/epochs.py",
        "if record.abandoned > record.published.epoch:",
        "if False:",
    ),
    Mutant(
        "dropped-plans-free-their-numbers",
        "engine/programs.py",
        "if age > NUMBERS_KEPT:",
        "if age > 0:",
    ),
    Mutant(
        "child-frees-its-parents-slots",
        "stores/lmdb/forks.py",
        "        ctypes.pythonapi.Py_IncRef(ctypes.py_object(parents))\n",
        "        del parents\n",
        flag="--processes",
    ),
    Mutant(
        "no-sync",
        "stores/lmdb/environment.py",
        "                sync=sync,\n",
        "                sync=False,\n",
    ),
    Mutant(
        "retry-adds-again",
        "engine/state.py",
        "self.store.state.get(self.shard, table.number, keys, self.epoch - 1)",
        "self.store.state.get(self.shard, table.number, keys, self.epoch)",
    ),
    Mutant(
        "cut-chosen-anew",
        "engine/epochs.py",
        "            if record.open is not None:\n                return record.open\n",
        "",
    ),
    Mutant(
        "session-does-not-wait",
        "access/sessions.py",
        "return self._lacking(published) or int(published.epoch < self._epoch)",
        "return int(published.epoch < self._epoch)",
    ),
    Mutant(
        "update-ignores-others",
        "access/statements/update_delete.py",
        "return [TableWrite(base.number, base.row_codec, Kind.PUT, old_keys, rows, expect=old)]",
        "return [TableWrite(base.number, base.row_codec, Kind.PUT, old_keys, rows)]",
    ),
    Mutant(
        "dropped-tables-go-at-once",
        "engine/housekeeping.py",
        'waits, more = item["version"] > version, False',
        "waits, more = False, False",
    ),
    Mutant(
        "cas-does-not-compare",
        "stores/lmdb/meta.py",
        '        if sums.get(meta, txn, "records", name) != old:\n            return False\n',
        "",
    ),
    Mutant(
        "resident-tells-twice",
        "engine/resident.py",
        "            self._untold.clear()\n",
        "",
    ),
    Mutant(
        "rows-lane-keeps-what-goes",
        "engine/rows/epoch.py",
        "((batch.rows, 1), (batch.before, -1))",
        "((batch.rows, 1),)",
    ),
    Mutant(
        "index-finds-one-consumer",
        "engine/rows/index.py",
        "for consumer in wanted.get(values[place], ()):",
        "for consumer in wanted.get(values[place], ())[:1]:",
    ),
    Mutant(
        "last-commit-is-not-made-again",
        "stores/lmdb/last_commit.py",
        "    while node.record is not None and",
        "    while False and",
        flag="--threads",
    ),
    Mutant(
        "group-commit-fails-in-silence",
        "stores/lmdb/group.py",
        "        for call in calls:\n            if call.error is None:",
        "        for call in calls[:1]:\n            if call.error is None:",
        flag="--threads",
    ),
    Mutant(
        "checksums-are-not-checked",
        "stores/lmdb/sums.py",
        "(zip(keys, stored, strict=True)))) or not all(stored):",
        "(zip(keys, stored, strict=True)))) and False:",
    ),
)


def main() -> int:
    wanted = sys.argv[1:]
    lived = []
    for mutant in MUTANTS:
        if not wanted or mutant.name in wanted:
            found = play(mutant)
            print(f"{mutant.name:35} {found}", flush=True)
            if found.startswith("NOT"):
                lived.append(mutant.name)
    return 1 if lived else 0


def play(mutant: Mutant) -> str:
    """After how many rounds the mutant is found, and by what."""
    with tempfile.TemporaryDirectory(prefix="viewkeep-mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        file = source / "viewkeep" / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            return f"NOT APPLIED: {mutant.file} has {text.count(mutant.old)} such places"
        file.write_text(text.replace(mutant.old, mutant.new))
        rounds = SPECIAL_ROUNDS if mutant.flag else ROUNDS
        command = [sys.executable, "-m", "tests.campaign", "--rounds", str(rounds)]
        if mutant.flag:
            command.append(mutant.flag)
        environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
    finding = re.search(r"FINDING in the round of seed (\d+): (.*)", ended.stdout)
    if finding is None:
        return f"NOT FOUND in {rounds} rounds {ended.stderr[-300:]}"
    return f"round {finding[1]}: {finding[2][:100]}"


if __name__ == "__main__":
    sys.exit(main())
