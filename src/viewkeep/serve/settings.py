"""What a server may do, for whom, and how much of it; refused at once where it is not safe.

Law: whoever is not on this machine must know a password. A server on any address but loopback
does not start without one.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from viewkeep.errors import InvalidSetting
from viewkeep.serve.users import read_users

HTTP_PORT, MYSQL_PORT = 8470, 3307
MIB = 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """Addresses, the password, TLS files, and limits of one server. Port 0 is any free one."""

    host: str = "127.0.0.1"
    http_port: int | None = HTTP_PORT  # None: no HTTP
    mysql_port: int | None = MYSQL_PORT  # None: no MySQL
    # Of any user; over HTTP also as a bearer token. Not shown, so that no log has it.
    password: str | None = field(default=None, repr=False)
    users: Path | None = None  # a file of names, roles and hashes of passwords
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    max_body: int = 16 * MIB  # bytes of one request
    max_rows: int = 100_000  # of one answer
    max_written: int = 100_000  # rows or keys of one request
    max_sql: int = 64 * 1024  # characters of SQL to parse; for MySQL without the constants in it
    max_tokens: int = 3_000  # words, numbers, texts and signs of one statement to parse
    max_statements: int = 1_000  # of one text
    max_parameters: int = 65_535  # of one statement
    max_key: int = 64 * 1024  # characters of a text in a key
    max_answer: int = 64 * MIB  # bytes of the values of one answer to a query
    max_seconds: float = 30.0  # of one request
    max_query_memory: int = 1_024 * MIB  # bytes that one query may hold
    max_memory: int = 2_048 * MIB  # bytes that all large queries together may hold
    max_connections: int = 2_000  # of each protocol
    max_handshakes: int = 100  # MySQL connections that have not shown the password yet
    handshake_seconds: float = 10.0  # that such a connection has for it
    idle_seconds: float = 600.0  # that a MySQL connection may say nothing: its wait_timeout
    stalled_seconds: float = 30.0  # after which a client that takes nothing it is sent is cut off
    guess_seconds: float = 10.0  # the longest pause after a wrong password; 0 for none
    allow_origins: tuple[str, ...] = ()  # sites whose pages browsers let read answers

    def __post_init__(self) -> None:
        if self.password is None and self.users is None and not is_loopback(self.host):
            raise InvalidSetting(
                f"{self.host} can be reached from other machines, so a password is needed: "
                "--password-file FILE, --users FILE, or the environment variable VIEWKEEP_PASSWORD"
            )
        if self.password == "":
            raise InvalidSetting("the password is empty")
        if self.users is not None and not read_users(self.users):
            raise InvalidSetting(f"the users file {self.users} has no users: viewkeep users add")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise InvalidSetting("TLS needs both files: --tls-certificate and --tls-key")
        if self.max_memory < self.max_query_memory:
            raise InvalidSetting(
                f"max_memory, of all queries, is {self.max_memory // MIB:,} MiB, less than the "
                f"{self.max_query_memory // MIB:,} MiB of one (max_query_memory)"
            )
        for origin in self.allow_origins:
            checked_origin(origin)
        for path in (self.tls_certificate, self.tls_key):
            if path is not None and not path.is_file():
                raise InvalidSetting(f"the TLS file {path} is not there")


def checked_origin(text: str) -> str:
    """An origin as browsers send it: https://example.com, with a port if it has one."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or text.endswith("/"):
        raise InvalidSetting(f"{text!r} is not an origin such as https://example.com")
    if parts.path or parts.query or parts.fragment or parts.username:
        raise InvalidSetting(f"{text!r} is more than an origin; leave out all after the name")
    return text.lower()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
