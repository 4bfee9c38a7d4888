"""Whose work fails: every step of a level is done in the name of one operator or base table.

Law: an error that the rows or the plan are to blame for leaves a level as OperatorFailed, which
names that operator. Errors that would come whatever the operator did (a full disk, a newer driver,
an epoch that is gone) pass unchanged: they say nothing about a view. A process that dies cannot
raise; whoever runs a level with `announce` is told each name before its work begins, so the name
told last is the one to suspect. Processor time is shared out by the time that each innermost name
took (`costs`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType

from viewkeep.deferred import pl
from viewkeep.engine.fanout import fan_out
from viewkeep.engine.rows.delta import TooMany
from viewkeep.errors import Corrupt, EpochGone, Fenced, OperatorFailed, StoreError
from viewkeep.plan.explain import title
from viewkeep.plan.program import Operator, OperatorFeed, Program, producer_id

Announce = Callable[[str], None]
_LONGEST = 500  # characters of a reason


class Blame:
    """A context manager for the work of one operator: `with blame(operator.id): ...`; they nest."""

    def __init__(self, program: Program, announce: Announce | None = None):
        self._program, self._announce = program, announce
        self._at: list[str] = []
        self._seconds: dict[str, float] = {}
        self._rows: dict[str, int] = {}
        # Reading the processor's clock is a system call, ten times as dear as this one.
        self._began = self._mark = time.perf_counter()
        self._worked = time.process_time()

    @property
    def is_told(self) -> bool:
        """Whether somebody listens, so that operators must be run one at a time."""
        return self._announce is not None

    def __call__(self, name: str) -> Blame:
        self._charge()
        self._at.append(name)
        if self._announce is not None:
            self._announce(name)
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._charge()
        name = self._at.pop()
        if error is not None and _tells(error):
            raise self._failed(name, error) from error
        if self._announce is not None and self._at:
            self._announce(self._at[-1])

    def changed(self, name: str, rows: int) -> None:
        """An operator has changed so many rows."""
        self._rows[name] = self._rows.get(name, 0) + rows

    @property
    def costs(self) -> dict[str, tuple[float, int]]:
        """Processor time in seconds and changed rows of each name so far."""
        worked = time.process_time() - self._worked
        share = worked / max(time.perf_counter() - self._began, 1e-9)
        return {
            name: (round(seconds * share, 6), self._rows.get(name, 0))
            for name, seconds in self._seconds.items()
        }

    def _charge(self) -> None:
        """Charge the time since the last call to whoever works now."""
        now = time.perf_counter()
        if self._at:
            name = self._at[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._mark
        self._mark = now

    def fan_out(
        self, delta: pl.DataFrame, consumers: Sequence[tuple[Operator, OperatorFeed]], shards: int
    ) -> Iterator[tuple[Operator, OperatorFeed, pl.DataFrame]]:
        """`fan_out`, which computes what feeds have in common: if it fails, find out for whom."""
        if self.is_told:
            for operator, feed in consumers:
                with self(operator.id):
                    shares = list(fan_out(delta, [(operator, feed)], shards))
                yield from shares
            return
        try:
            yield from fan_out(delta, consumers, shards)
        except BaseException as error:
            if _tells(error):
                for operator, feed in consumers:
                    with self(operator.id):
                        deque(fan_out(delta, [(operator, feed)], shards), maxlen=0)
            raise

    def _failed(self, name: str, error: BaseException) -> OperatorFailed:
        views = sorted(views_on(self._program, name))
        shown = ", ".join(views[:5]) + (f" and {len(views) - 5} more" if len(views) > 5 else "")
        what, reason = described(self._program, name), reason_of(error)
        text = f"{what}, which {shown} read{'s' * (len(views) == 1)}: {reason}"
        return OperatorFailed(text, name, f"{what}: {reason}")


def described(program: Program, name: str) -> str:
    """An operator or a base table in a few words."""
    operator = program.by_id.get(name)
    if operator is not None:
        return title(operator)
    table = next((s.table for s in program.sources if producer_id(s) == name), name)
    return f"the rows of {table}"


def reason_of(error: BaseException) -> str:
    """An error in one line of bounded length."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:_LONGEST].removesuffix(": ")


def views_on(program: Program, name: str) -> set[str]:
    """The views that stand on an operator, or on a base table (`table:NUMBER`)."""
    if name in program.by_id:
        return {view for view in program.placements if program.uses(view, name)}
    fed = {operator.id for operator, _ in program.consumers(name)}
    return {view for view, p in program.placements.items() if not fed.isdisjoint(p.operators)}


def _tells(error: BaseException) -> bool:
    """Whether an error tells something about the operator that met it."""
    if isinstance(error, OperatorFailed | Fenced | EpochGone | OSError | TooMany):
        return False
    if isinstance(error, StoreError):
        return isinstance(error, Corrupt)
    return isinstance(error, Exception | pl.exceptions.PanicException)
