"""The users file: names, roles, and what shows that a password is right, but no password.

Law: only the owner of the file may read it, and it changes in one step. `scrypt` and a salt of its
own stand for each password. What MySQL's protocol needs, hashes of hashes that are quick to make,
stands there unless it is left out.

    name:role:salt$scrypt:mysql_native_password:caching_sha2_password
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from viewkeep.errors import InvalidSetting

ROLES = ("read", "write", "admin")  # from the lowest; `roles` says what each may do
_HEADER = "# users of viewkeep, format 1"
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_OTHERS = 0o077  # permissions of the group and of all


@dataclass(frozen=True)
class User:
    """A user. None of what is kept of the password is shown, so that no log has it."""

    name: str
    role: str
    salt: bytes = field(repr=False)
    scrypt: bytes = field(repr=False)
    native: bytes | None = field(repr=False)  # SHA1(SHA1(password)); None: not over MySQL
    caching: bytes | None = field(repr=False)  # SHA256(SHA256(password))

    def knows(self, password: bytes) -> bool:
        """Whether this is the password; takes 50 ms."""
        return hmac.compare_digest(_scrypt(password, self.salt), self.scrypt)


def new_user(name: str, role: str, password: str, *, mysql: bool = True) -> User:
    """A user with this password."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(f"{name!r} is not a user's name: letters, digits, and _ . @ -")
    if role not in ROLES:
        raise InvalidSetting(f"a role is read, write or admin, not {role!r}")
    if not password:
        raise InvalidSetting("the password is empty")
    secret, salt = password.encode(), secrets.token_bytes(16)
    return User(
        name,
        role,
        salt,
        _scrypt(secret, salt),
        hashlib.sha1(hashlib.sha1(secret).digest()).digest() if mysql else None,
        hashlib.sha256(hashlib.sha256(secret).digest()).digest() if mysql else None,
    )


def nobody() -> User:
    """A user whose password nobody knows: a name that is not there takes as long to refuse."""
    return User("", "read", bytes(16), bytes(32), None, None)


def read_users(file: Path) -> dict[str, User]:
    """The users of a file, by name; InvalidSetting if others may read it, or it is damaged."""
    try:
        with file.open() as opened:
            mode = os.fstat(opened.fileno()).st_mode
            lines = opened.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the users file {file} cannot be read: {error}") from error
    if mode & _OTHERS:
        raise InvalidSetting(f"others may read the users file {file}: chmod 600 {file}")
    if lines[:1] != [_HEADER]:
        raise InvalidSetting(f"{file} is not a users file; `viewkeep users add` makes one")
    users = {}
    for number, line in enumerate(lines[1:], 2):
        user = _user_of(line)
        if user is None or user.name in users:
            raise InvalidSetting(f"{file}, line {number}: not a user as `users add` writes them")
        users[user.name] = user
    return users


def write_users(file: Path, users: Collection[User]) -> None:
    """Write the file anew, in one step."""
    lines = [_HEADER, *map(_line_of, sorted(users, key=lambda user: user.name))]
    number, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # with mode 0600
    try:
        with os.fdopen(number, "w") as opened:
            opened.write("\n".join(lines) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise


def _scrypt(password: bytes, salt: bytes) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=1 << 14, r=8, p=1, dklen=32)


def _line_of(user: User) -> str:
    quick = ["" if part is None else part.hex() for part in (user.native, user.caching)]
    return ":".join((user.name, user.role, f"{user.salt.hex()}${user.scrypt.hex()}", *quick))


def _user_of(line: str) -> User | None:
    parts = line.split(":")
    if len(parts) != 5 or not _NAME.fullmatch(parts[0]) or parts[1] not in ROLES:
        return None
    try:
        salt, scrypt, native, caching = map(bytes.fromhex, (*parts[2].split("$"), *parts[3:]))
    except ValueError:
        return None
    if [len(scrypt), len(native), len(caching)] not in ([32, 20, 32], [32, 0, 0]):
        return None
    return User(parts[0], parts[1], salt, scrypt, native or None, caching or None)
