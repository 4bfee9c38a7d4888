"""Logs as a delivery service keeps them: late, replayed, and split or merged while they are read.

Each look at the head *delivers*: it takes what the embedded store has logged since, holds some
operations back for later deliveries, sometimes starts again from an earlier place as a service does
that died before it had noted how far it was, and appends the operations to logs of its own, which
begin and end as it goes. Law: what was delivered is read again as it was, by every process; within
a few deliveries everything has come.
"""

from __future__ import annotations

import fcntl
import json
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from viewkeep.cells import CellOperation
from viewkeep.codec.key_order import hash_key
from viewkeep.stores.contract import Cut, Log, LogSplit

_STATE: Final = "state.json"
_OFFSET: Final = struct.Struct(">Q")
_CHANGE_EVERY: Final = 3  # deliveries after which a log is split, or two are merged

Read: TypeAlias = Callable[[LogSplit], Iterator[tuple[int, CellOperation]]]


class Delivery:
    """The delivered logs of one store, in a folder. `read` gives operations with their places."""

    def __init__(self, folder: Path, inner: Log, read: Read, how: Any):
        self.folder, self._inner, self._read, self._how = folder, inner, read, how
        folder.mkdir(exist_ok=True)

    def head(self) -> Cut:
        """The cut after a delivery."""
        with self._locked() as state:
            self._deliver(state)
            return self._cut(state)

    def settled(self, cut: Cut) -> int | None:
        """Below which timestamp all was delivered before a cut."""
        with self._locked() as state:
            known = [at for ends, at in state["settled"] if cut.covers(_cut_of(ends))]
        return max(known, default=None)

    def first_after(self, cut: Cut) -> int | None:
        """When the oldest operation that a cut lacks was delivered, about."""
        with self._locked() as state:
            if cut.covers(_cut_of(state["ends"])):
                return None
            return int(state["watermark"])

    def operations(self, split: LogSplit) -> Iterator[CellOperation]:
        """The operations of a split, as they were delivered."""
        with open(self._file(split.log, "places"), "rb") as places:
            places.seek(split.start * _OFFSET.size)
            found = places.read((split.stop - split.start) * _OFFSET.size)
        with open(self._file(split.log, "operations"), "rb") as file:
            for (place,) in _OFFSET.iter_unpack(found):
                file.seek(place)
                yield pickle.load(file)

    def truncate(self, before: Cut) -> Cut:
        """Forget logs that have ended and lie before a cut; how far the inner log is delivered."""
        with self._locked() as state:
            for log in [log for log in state["ends"] if log not in state["open"]]:
                if log in before.positions and before.position(log) >= state["ends"][log]:
                    state["dropped"] += state["ends"].pop(log)
                    state["births"].pop(log, None)
            held = dict[str, int]()
            for _, log, at in state["held"]:
                held[log] = min(at, held.get(log, at))
            read = {log: min(at, held.get(log, at)) for log, at in state["read"].items()}
        back = self._how.replay
        return Cut({log: max(0, at - back) for log, at in read.items()}, begun=1)

    def _deliver(self, state: dict[str, Any]) -> None:
        head = self._inner.head()
        start = Cut(state["read"], begun=head.begun)
        if start.covers(head) and not state["held"] and state["number"]:
            return
        state["number"] += 1
        number = state["number"]
        source = random.Random(f"{self._how.seed} {number}")
        come: list[CellOperation] = []
        again = source.random() * 100 < self._how.lose
        back = source.randrange(self._how.replay + 1) if again else 0
        read = {log: max(0, at - back) for log, at in state["read"].items()}
        for split in self._inner.splits(Cut(read, begun=head.begun), head):
            known = state["read"].get(split.log, 0)
            last, is_late = -1, False
            for at, operation in self._read(split):
                if at != last:  # the operations of one write come together
                    last, is_late = at, at >= known and source.random() * 100 < self._how.late
                    if is_late:
                        state["held"].append([number + source.randrange(1, 4), split.log, at])
                if not is_late:
                    come.append(operation)
            state["read"][split.log] = max(known, split.stop)
        for one in [one for one in state["held"] if one[0] <= number]:
            state["held"].remove(one)
            _, log, at = one
            come += [operation for _, operation in self._read(LogSplit(log, at, at + 1, 1))]
        source.shuffle(come)
        if number % _CHANGE_EVERY == 0:
            self._change(state, source)
        homes: dict[str, list[CellOperation]] = {}
        for operation in come:
            home = state["open"][hash_key(operation.key) % len(state["open"])]
            homes.setdefault(home, []).append(operation)
        for home, operations in homes.items():
            self._append(state, home, operations)
        state["watermark"] = max(state["watermark"], head.watermark)
        undelivered = [at for _, _, at in state["held"]] + list(state["read"].values())
        state["settled"].append([dict(state["ends"]), min(undelivered, default=0) + 1])

    def _change(self, state: dict[str, Any], source: random.Random) -> None:
        """End a log and begin two, or end two and begin one."""
        opened = state["open"]
        if not self._how.logs:
            return
        is_split = len(opened) < 2 or (len(opened) < self._how.logs and source.random() < 0.5)
        for _ in range(1 if is_split else 2):
            opened.pop(source.randrange(len(opened)))
        for _ in range(2 if is_split else 1):
            self._begin(state)

    def _begin(self, state: dict[str, Any]) -> None:
        state["begun"] += 1
        name = f"log-{state['begun']}"
        state["open"].append(name)
        state["ends"][name] = 0
        if state["begun"] > 1:
            state["births"][name] = state["begun"]
        for kind in ("operations", "places"):
            self._file(name, kind).touch()

    def _append(self, state: dict[str, Any], log: str, operations: list[CellOperation]) -> None:
        with (
            open(self._file(log, "operations"), "ab") as file,
            open(self._file(log, "places"), "r+b") as places,
        ):
            places.seek(state["ends"][log] * _OFFSET.size)  # over what a death left behind
            for operation in operations:
                places.write(_OFFSET.pack(file.tell()))
                file.write(pickle.dumps(operation))
        state["ends"][log] += len(operations)

    def _cut(self, state: dict[str, Any]) -> Cut:
        count = sum(state["ends"].values()) + state["dropped"]
        births = {log: at for log, at in state["births"].items() if log in state["ends"]}
        return Cut(dict(state["ends"]), state["watermark"], count, state["begun"], births)

    def _file(self, log: str, kind: str) -> Path:
        return self.folder / f"{log}.{kind}"

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """The state, which is written back."""
        with open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            file = self.folder / _STATE
            if file.exists():
                text = file.read_text()
                state: dict[str, Any] = json.loads(text)
            else:
                text, state = "", _fresh()
                self._begin(state)
            yield state
            if (after := json.dumps(state)) != text:
                draft = self.folder / f"{_STATE}.new"
                draft.write_text(after)
                draft.replace(file)


def _cut_of(ends: dict[str, int]) -> Cut:
    births = {log: int(log.removeprefix("log-")) for log in ends}
    return Cut(ends, begun=max(births.values(), default=0), births=births)


def _fresh() -> dict[str, Any]:
    return {
        "number": 0,  # of deliveries
        "read": {},  # how far the inner logs are
        "held": [],  # the delivery in which it is due, inner log, place
        "open": [],
        "ends": {},
        "births": {},
        "begun": 0,
        "dropped": 0,
        "watermark": 0,
        "settled": [],  # the ends after a delivery, and below which timestamp all had come
    }
