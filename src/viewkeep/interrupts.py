"""A look at whether work should end, for code that knows no clock and no client.

Law: whoever runs work says what looks (`looking`); work that may take long looks often (`check`),
where it holds nothing that an error would leave behind. Without anyone who looks, `check` costs
some nanoseconds and does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOOK: ContextVar[Callable[[], None] | None] = ContextVar("viewkeep_interrupts", default=None)


def check() -> None:
    """Raise what ends the work that this thread does, if something should."""
    look = _LOOK.get()
    if look is not None:
        look()


@contextmanager
def looking(look: Callable[[], None]) -> Iterator[None]:
    """Work inside looks by this, which raises when the work should end."""
    token = _LOOK.set(look)
    try:
        yield
    finally:
        _LOOK.reset(token)
