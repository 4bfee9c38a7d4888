"""Whose password is right, over every protocol: of users with roles, and the one without a name.

Law: a name of the users file has its own password and no other; any other name has the password of
the settings, with the highest role. A password is looked at only when its turn has come
(`guesses`), and counts as wrong until it was right. A right one is slow to check only once.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable

from viewkeep.serve.guesses import Guesses
from viewkeep.serve.roles import Role
from viewkeep.serve.settings import Settings
from viewkeep.serve.users import User, nobody, read_users

Slowly = Callable[[Callable[[bytes], bool], bytes], Awaitable[bool]]
NATIVE, CACHING = "mysql_native_password", "caching_sha2_password"


class Credentials:
    """What one server lets in. `slowly` runs a slow check in a thread."""

    def __init__(self, settings: Settings, guesses: Guesses, slowly: Slowly):
        self._guesses, self._slowly = guesses, slowly
        self._password = None if settings.password is None else settings.password.encode()
        self._users = {} if settings.users is None else read_users(settings.users)
        self.needed = self._password is not None or settings.users is not None
        self._nobody = nobody()
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}  # by name: the mark of the password that was right
        self._checks: dict[tuple[str, bytes], asyncio.Future[bool]] = {}

    @property
    def secret(self) -> str | None:
        """What keys are made of, another one whenever a password changes; None without any."""
        if not self.needed:
            return None
        users = [f"{name} {one.role} {one.scrypt.hex()}" for name, one in self._users.items()]
        return "\n".join([(self._password or b"").decode(), *sorted(users)])

    async def role(self, address: str, name: str | None, password: bytes | None) -> Role | None:
        """The role that a name with a password has; None if the password is wrong, or no text."""
        user = self._users.get(name or "")
        known = None if user is None else user.name
        await self._guesses.turn(address, known)
        if password is None:
            self._guesses.wrong(address, known)
            return None
        if self._is_known(user, password):
            self._guesses.right(address, known)
            return _role_of(user)
        check = self._checks.get((address, self._mark(user, password)))
        if check is None:
            self._guesses.wrong(address, known)
            if not self._users:
                return None
            check = self._begin(address, user, password)
        if not await asyncio.shield(check):
            return None
        self._guesses.right(address, known)
        return _role_of(user)

    def _is_known(self, user: User | None, password: bytes) -> bool:
        """Whether this is the right password, as far as it is quick to say."""
        if user is None:
            expected = self._password
            return expected is not None and hmac.compare_digest(password, expected)
        mark = self._right.get(user.name)
        return mark is not None and hmac.compare_digest(mark, self._mark(user, password))

    def _mark(self, user: User | None, password: bytes) -> bytes:
        """What stands for a user's password in memory."""
        name = "" if user is None else user.name
        return hmac.digest(self._key, name.encode() + b":" + password, "sha256")

    def _begin(self, address: str, user: User | None, password: bytes) -> asyncio.Future[bool]:
        """Begin to check a password; requests that bring the same one meanwhile share it."""
        mark = self._mark(user, password)

        async def check() -> bool:
            try:
                right = await self._slowly((user or self._nobody).knows, password)
                if right and user is not None:
                    self._right[user.name] = mark
                return right and user is not None
            finally:
                del self._checks[address, mark]

        task = asyncio.ensure_future(check())
        self._checks[address, mark] = task
        return task

    async def proven(
        self, address: str, name: str, plugin: str, nonce: bytes, answer: bytes
    ) -> Role | None:
        """The role of a MySQL client that answers a nonce; None if its password is wrong."""
        user = self._users.get(name)
        known = None if user is None else user.name
        await self._guesses.turn(address, known)
        if user is None:
            twice = None if self._password is None else twice_hashed(plugin, self._password)
        else:
            twice = user.native if plugin == NATIVE else user.caching
        if twice is None or not proves(plugin, twice, nonce, answer):
            self._guesses.wrong(address, known)
            return None
        self._guesses.right(address, known)
        return _role_of(user)


def proves(plugin: str, twice: bytes, nonce: bytes, answer: bytes) -> bool:
    """Whether an answer to a nonce shows that the client knows what was hashed twice."""
    if plugin == NATIVE:
        mask, once = hashlib.sha1(nonce + twice).digest(), hashlib.sha1
    else:
        mask, once = hashlib.sha256(twice + nonce).digest(), hashlib.sha256
    if len(answer) != len(mask):
        return False
    hashed = bytes(a ^ b for a, b in zip(answer, mask, strict=True))
    return hmac.compare_digest(once(hashed).digest(), twice)


def twice_hashed(plugin: str, password: bytes) -> bytes:
    """What a plugin of MySQL proves a password by."""
    once = hashlib.sha1 if plugin == NATIVE else hashlib.sha256
    return once(once(password).digest()).digest()


def _role_of(user: User | None) -> Role:
    return Role.ADMIN if user is None else Role[user.role.upper()]
