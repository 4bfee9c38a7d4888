"""What the actors of a round share: a weight, a step, and what they lose when a process dies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from viewkeep.errors import NotReady, UnknownName, ViewFailed

from .model import Effect
from .world import Intent, Process

# A view that is being loaded, was dropped just now, or was set aside.
UNREADABLE = (NotReady, UnknownName, ViewFailed)

if TYPE_CHECKING:
    from .rounds import Round


class Actor:
    """One who takes turns in a round. `hosts` are the processes that may run its steps."""

    weight: ClassVar[float] = 1.0
    hosts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, round: Round):
        self.round = round
        self.rng, self.world, self.model = round.rng, round.world, round.model

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    def act(self, process: Process) -> None:
        """One step, in one of the hosts."""
        raise NotImplementedError

    def forget(self, host: str) -> None:
        """What a host had in memory is gone; tokens that a client keeps are not."""

    def views(self, process: Process) -> list[str]:
        return sorted(process.db.catalog.current().views)

    def intend(self, process: Process, number: int, effect: Effect) -> None:
        """Say what a write will leave, before it is made."""
        process.intent = Intent(number, effect, len(self.model.writes))

    def happened(self, what: str) -> None:
        self.world.happened[what] += 1


def tuples(rows: Any) -> list[tuple[Any, ...]]:
    """Rows given as dicts, as tuples in the order of their columns."""
    return [tuple(row.values()) for row in rows]
