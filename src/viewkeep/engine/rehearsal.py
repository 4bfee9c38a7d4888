"""A rehearsal: an open epoch run in a process that changes nothing and tells where it is.

`python -m viewkeep.engine.rehearsal` reads a request, a JSON document, from stdin and writes lines
to stdout: each operator before it runs, then a JSON document with the end. Law: it reads what the
epoch's tasks read and computes what they compute, but every write stays in its memory; so it may be
killed at any time, and a task that a row kills is met here too.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any

from viewkeep.engine.blame import Announce, reason_of
from viewkeep.engine.epochs import Epochs, OpenEpoch
from viewkeep.engine.exchange import REPORT
from viewkeep.engine.failures import without
from viewkeep.engine.level import run_level, run_sources
from viewkeep.engine.log_splits import even_splits, levels_to_run
from viewkeep.engine.programs import Failure, commit_plan, load_plan, newest_plan
from viewkeep.engine.spool import Mailbox, Message
from viewkeep.errors import OperatorFailed
from viewkeep.stores import open_store
from viewkeep.stores.contract import Store
from viewkeep.stores.wrapped import WrappedStore

_UNHEARD = (
    *("tables.write", "tables.drop", "log.truncate"),
    *(f"{part}.{name}" for part in ("state", "views") for name in ("revert", "sweep", "drop")),
)


class DryStore(WrappedStore):
    """A store whose meta records change in memory only, and whose rows do not change at all."""

    def __init__(self, inner: Store):
        super().__init__(inner)
        self._meta: dict[str, bytes | None] = {}

    def call(self, method: str, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if method in ("state.apply", "views.apply"):
            return None
        if method in _UNHEARD:
            raise AssertionError(f"a rehearsal does not {method}")
        if method == "meta.get":
            return self._meta[args[0]] if args[0] in self._meta else act(*args)
        if method == "meta.scan":
            found = {**dict(act(*args)), **self._meta}
            kept = ((k, v) for k, v in found.items() if v is not None and k.startswith(args[0]))
            return sorted(kept)
        if method == "meta.cas":
            key, old, new = args
            if self.meta.get(key) != old:
                return False
            self._meta[key] = new
            return True
        return act(*args, **options)


def rehearse(store: Store, number: int, views: Collection[str], announce: Announce) -> None:
    """Run the open epoch of this number without some views, one operator after the other."""
    dry = DryStore(store)
    epoch = Epochs(dry).open_epoch(number)
    if views:
        plan = load_plan(dry, epoch.plan)
        marks = {name: Failure(number, 0, "") for name in views if name in plan.views}
        version = newest_plan(dry).version + 1
        commit_plan(dry, replace(without(plan, marks), version=version))
        epoch = replace(epoch, plan=version)
    _run(dry, epoch, announce)


def _run(store: Store, epoch: OpenEpoch, announce: Announce) -> None:
    program = load_plan(store, epoch.plan).program
    shares = even_splits(store, program, epoch)
    splits = chain.from_iterable(shares)
    sent = _posted(m for s in splits for m in run_sources(store, epoch, s, announce))
    for level in range(1, levels_to_run(store, program, epoch, shares)):
        sent = _posted(_run_shards(store, epoch, level, sent, announce))


def _run_shards(
    store: Store, epoch: OpenEpoch, level: int, sent: Mailbox, announce: Announce
) -> Iterator[Message]:
    for shard in range(store.state.shards):
        messages = ((shard, blob) for blob in sent.take(shard))
        yield from run_level(store, epoch, level, [shard], messages, announce)


def _posted(messages: Iterable[Message]) -> Mailbox:
    """The messages for a level; like tasks of a pipeline, it does not hold many in memory."""
    mailbox = Mailbox()
    for message in messages:
        if message[0] != REPORT:
            mailbox.put(message)
    return mailbox


def _main() -> None:
    request = json.load(sys.stdin)
    channel = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is not for the channel
    with suppress(OSError, ValueError):
        if request["memory"]:
            resource.setrlimit(resource.RLIMIT_DATA, (request["memory"], request["memory"]))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # if memory runs out, end this process and not another

    def tell(text: str) -> None:
        os.write(channel, text.encode() + b"\n")

    end: dict[str, Any] = {"ok": True}
    store = open_store(request["url"])
    try:
        rehearse(store, request["epoch"], request["without"], tell)
    except OperatorFailed as error:
        end = {"ok": False, "operator": error.operator, "reason": error.reason}
    except Exception as error:
        end = {"ok": False, "operator": None, "reason": reason_of(error)}
    tell(json.dumps(end))
    store.close()


if __name__ == "__main__":
    _main()
