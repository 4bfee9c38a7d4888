"""Errors as MySQL knows them: a number, an SQLSTATE, and our own words.

Law: every error of viewkeep has one number here, the one that a MySQL server gives where a client
must do the same about it; clients make IntegrityError, ProgrammingError and so on of the numbers.
"""

from __future__ import annotations

from viewkeep import errors as vk
from viewkeep.serve.guesses import TooManyGuesses
from viewkeep.serve.limits import Stopping

DATABASE_NAME = "viewkeep"


class Fault(Exception):
    """An error to be sent to the client."""

    def __init__(self, code: int, state: str, message: str):
        super().__init__(message)
        self.code, self.state, self.message = code, state, message


# The most special kinds first.
_CODES: tuple[tuple[type[Exception], int, str], ...] = (
    (vk.SqlSyntaxError, 1064, "42000"),
    (vk.TypeMismatch, 1366, "HY000"),
    (vk.Unsupported, 1235, "42000"),
    (vk.QueryTooLarge, 1104, "42000"),
    (vk.DuplicateKey, 1062, "23000"),
    (vk.Conflict, 1020, "HY000"),
    (vk.InvalidRow, 1366, "HY000"),
    (vk.QueryTimeout, 3024, "HY000"),
    (vk.QueryCancelled, 1317, "70100"),
    (vk.Timeout, 1205, "HY000"),
    (vk.NotReady, 1205, "HY000"),
    (vk.PartialKey, 1235, "42000"),
    (vk.ViewFailed, 1356, "HY000"),
    (vk.EpochGone, 1412, "HY000"),
    (vk.InvalidReadPoint, 1231, "42000"),
    (vk.InvalidToken, 1231, "42000"),
    (vk.InvalidSetting, 1231, "42000"),
    (Stopping, 1053, "08S01"),
    (TooManyGuesses, 1129, "HY000"),
    (vk.Overloaded, 1041, "HY000"),
    (vk.StoreFull, 1021, "HY000"),
    (vk.Locked, 1205, "HY000"),
    (vk.OutcomeUnknown, 1180, "HY000"),
    (vk.Corrupt, 1194, "HY000"),
    (vk.StoreError, 1030, "HY000"),
)


def fault_of(error: Exception) -> Fault:
    """The fault of any error; one that nobody foresaw is 1105 and says no more than its kind."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, vk.UnknownName):
        return _unknown(error)
    if isinstance(error, vk.CatalogError):
        return _catalog(error)
    if isinstance(error, vk.InvalidRow) and "must not be NULL" in str(error):
        return Fault(1048, "23000", str(error))
    for kind, code, state in _CODES:
        if isinstance(error, kind):
            return Fault(code, state, str(error))
    if isinstance(error, vk.ViewkeepError):
        return Fault(1105, "HY000", str(error))
    return Fault(1105, "HY000", f"an error inside the server: {type(error).__name__}")


def _unknown(error: vk.UnknownName) -> Fault:
    reason = error.reason
    if "function" in reason:
        return Fault(1305, "42000", str(error))
    if "no column" in reason:
        return Fault(1054, "42S22", str(error))
    if "may be" in reason:
        return Fault(1052, "23000", str(error))
    if "no table" in reason:
        return Fault(1146, "42S02", str(error))
    return Fault(1064, "42000", str(error))


def _catalog(error: vk.CatalogError) -> Fault:
    text = str(error)
    if "exists already" in text:
        return Fault(1050, "42S01", text)
    if text.startswith("there is no"):
        return Fault(1051, "42S02", text)
    return Fault(1451, "23000", text) if "is read by" in text else Fault(1105, "HY000", text)


def syntax(message: str) -> Fault:
    """A statement that does not parse."""
    return Fault(1064, "42000", message)


def unsupported(message: str) -> Fault:
    """A statement that MySQL has and viewkeep has not; the message says what to do."""
    return Fault(1235, "42000", message)


def denied(user: str, *, with_password: bool) -> Fault:
    """A wrong password, or none."""
    used = "YES" if with_password else "NO"
    return Fault(1045, "28000", f"Access denied for user '{user}' (using password: {used})")


def denied_statement(word: str, user: str, needed: str, role: str) -> Fault:
    """A statement that the user's role does not allow."""
    text = f"Access denied; {word} needs the role {needed}, and user '{user}' has the role {role}"
    return Fault(1227, "42000", text)


def no_database(name: str) -> Fault:
    """A database that is not there: a server serves one."""
    return Fault(1049, "42000", f"Unknown database '{name}'; this server has '{DATABASE_NAME}'")
