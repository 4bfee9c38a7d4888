"""Whose password is right, over every protocol: of users with roles, and the one without a name.

Law: a name of the users file has its own password and no other; any other name has the password of
the settings, with the highest role. A password is looked at only when its turn has come
(`guesses`), and counts as wrong until it was right. A right one is slow to check only once. The
users file is read again when it changes; what was let in before holds only as far as it still would
be. A file that cannot be read leaves the users as they were, and the log says so.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from viewkeep.errors import InvalidSetting
from viewkeep.serve.guesses import Guesses
from viewkeep.serve.roles import Role
from viewkeep.serve.settings import Settings
from viewkeep.serve.users import User, nobody, read_users

Slowly = Callable[[Callable[[bytes], bool], bytes], Awaitable[bool]]
NATIVE, CACHING = "mysql_native_password", "caching_sha2_password"
LOOK_SECONDS = 0.4  # between looks at the users file
log = logging.getLogger("viewkeep.serve")


@dataclass(frozen=True)
class Grant:
    """What somebody was let in as. `Credentials.holds` says whether that is so still."""

    role: Role
    user: User | None = None  # None: by no name of the users file
    secret: str | None = None  # what made the key of the link that let it in


class Credentials:
    """What one server lets in. `slowly` runs a slow check in a thread."""

    def __init__(self, settings: Settings, guesses: Guesses, slowly: Slowly):
        self._guesses, self._slowly = guesses, slowly
        self._password = None if settings.password is None else settings.password.encode()
        self._file = settings.users
        self._seen = None if self._file is None else _stamp(self._file)
        self._users = {} if self._file is None else read_users(self._file)
        self.needed = self._password is not None or settings.users is not None
        self._nobody = nobody()
        self._key = secrets.token_bytes(32)
        self._right: dict[User, bytes] = {}  # the mark of the password that was right
        self._checks: dict[tuple[str, bytes], asyncio.Future[bool]] = {}

    @property
    def secret(self) -> str | None:
        """What keys are made of, another one whenever a password changes; None without any."""
        if not self.needed:
            return None
        users = [f"{name} {one.role} {one.scrypt.hex()}" for name, one in self._users.items()]
        return "\n".join([(self._password or b"").decode(), *sorted(users)])

    async def follow(self) -> None:
        """Read the users file again whenever it changes, without end."""
        while self._file is not None:
            await asyncio.sleep(LOOK_SECONDS)
            seen = await asyncio.to_thread(_stamp, self._file)
            if seen == self._seen:
                continue
            try:
                users = await asyncio.to_thread(read_users, self._file)
            except InvalidSetting as error:
                log.error("the users stay as they were: %s", error)
            else:
                self._users = users
                self._right = {one: mark for one, mark in self._right.items() if self._is_user(one)}
                log.info("the users file has changed: %d users", len(users))
            self._seen = seen

    def holds(self, grant: Grant) -> bool:
        """Whether it would be given still: the user is as it was, and the links' key too."""
        if grant.secret is not None and grant.secret != self.secret:
            return False
        return grant.user is None or self._is_user(grant.user)

    def _is_user(self, user: User) -> bool:
        return self._users.get(user.name) == user

    async def grant(self, address: str, name: str | None, password: bytes | None) -> Grant | None:
        """What a name with a password is let in as; None if the password is wrong, or no text."""
        user = self._users.get(name or "")
        known = None if user is None else user.name
        await self._guesses.turn(address, known)
        if password is None:
            self._guesses.wrong(address, known)
            return None
        if self._is_known(user, password):
            self._guesses.right(address, known)
            return _grant_of(user)
        check = self._checks.get((address, self._mark(user, password)))
        if check is None:
            self._guesses.wrong(address, known)
            if not self._users:
                return None
            check = self._begin(address, user, password)
        if not await asyncio.shield(check):
            return None
        self._guesses.right(address, known)
        return _grant_of(user)

    def _is_known(self, user: User | None, password: bytes) -> bool:
        """Whether this is the right password, as far as it is quick to say."""
        if user is None:
            expected = self._password
            return expected is not None and hmac.compare_digest(password, expected)
        mark = self._right.get(user)
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
                    self._right[user] = mark
                return right and user is not None
            finally:
                del self._checks[address, mark]

        task = asyncio.ensure_future(check())
        self._checks[address, mark] = task
        return task

    async def proven(
        self, address: str, name: str, plugin: str, nonce: bytes, answer: bytes
    ) -> Grant | None:
        """What a MySQL client that answers a nonce is let in as; None if its password is wrong."""
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
        return _grant_of(user)


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


def _grant_of(user: User | None) -> Grant:
    return Grant(Role.ADMIN if user is None else Role[user.role.upper()], user)


def _stamp(file: Path) -> tuple[int, int, int, int] | None:
    """What changes with a file; None if there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode
