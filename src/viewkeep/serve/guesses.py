"""Wrong passwords slow their address down, over every protocol.

Law: after a few wrong passwords an address has them checked one after another, each after a longer
pause, and no more of them wait than the longest pause allows. So it is for each user that an
address guesses at: its right password for another user does not end that. Other addresses notice
nothing, and what is remembered is bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from dataclasses import dataclass

from viewkeep.errors import Overloaded

FREE = 5  # wrong passwords in a row that cost nothing
FIRST_SECONDS = 0.1  # the pause after the next one; it doubles with each
FORGET_SECONDS = 600.0  # after the last wrong password of an address
MOST_ADDRESSES = 10_000


class TooManyGuesses(Overloaded):
    """An address has sent too many wrong passwords; the one at hand was not looked at."""


@dataclass
class _Address:
    wrong: int = 0
    last: float = 0.0  # wrong password
    next: float = 0.0  # time at which a password may be looked at


class Guesses:
    """What is known of the addresses that sent wrong passwords; 0 seconds turn the pauses off."""

    def __init__(self, longest_seconds: float):
        self._longest = longest_seconds
        self._addresses: dict[str, _Address] = {}  # the one that was wrong last stands last

    async def turn(self, address: str, user: str | None = None) -> None:
        """Wait until a password from this address may be looked at; the caller then says how it
        was before it waits again. `user` is given only if there is such a one."""
        for name in _names(address, user):
            await self._turn(name, address)

    async def _turn(self, name: str, address: str) -> None:
        known = self._addresses.get(name)
        if known is None or known.wrong <= FREE:
            return
        now = time.monotonic()
        if now - known.last > FORGET_SECONDS:
            return
        begins = max(now, known.next)
        if begins - now > self._longest:
            raise TooManyGuesses(
                f"too many wrong passwords came from {address}; try again in {self._longest:g} s"
            )
        known.next = begins + self._pause(known.wrong)
        await asyncio.sleep(begins - now)

    def wrong(self, address: str, user: str | None = None) -> None:
        """A password from this address was wrong."""
        if not self._longest:
            return
        for name in _names(address, user):
            self._note(name)

    def _note(self, name: str) -> None:
        now = time.monotonic()
        known = self._addresses.pop(name, None)
        if known is None or now - known.last > FORGET_SECONDS:
            known = _Address()
        known.wrong, known.last = known.wrong + 1, now
        if known.wrong > FREE:
            known.next = max(known.next, now + self._pause(known.wrong))
        while len(self._addresses) >= MOST_ADDRESSES:
            del self._addresses[next(iter(self._addresses))]
        self._addresses[name] = known

    def right(self, address: str, user: str | None = None) -> None:
        """A password from this address was right: it begins anew."""
        if self._addresses:
            for name in _names(address, user):
                self._addresses.pop(name, None)

    def _pause(self, wrong: int) -> float:
        return min(self._longest, FIRST_SECONDS * 2.0 ** min(wrong - FREE - 1, 60))


def _names(address: str, user: str | None) -> list[str]:
    """What the wrong passwords of an address count for: itself, and itself with the user."""
    network = _network(address)
    return [network] if user is None else [network, f"{network} {user}"]


def _network(address: str) -> str:
    """What one guesser has of its own: an address, or a network of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    mapped = getattr(found, "ipv4_mapped", None)
    return str(mapped) if mapped else str(ipaddress.ip_network((int(found), 64), strict=False))
