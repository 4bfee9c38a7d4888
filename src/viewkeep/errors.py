"""The one error tree: every failure a user can meet, with what to do about it in its message.

ViewkeepError
├── SqlError               the statement cannot be taken
│   ├── SqlSyntaxError         it does not parse
│   ├── UnknownName            a table, view, column or function does not exist
│   ├── TypeMismatch           an expression or a value has the wrong type
│   ├── Unsupported            valid SQL that cannot be kept incrementally (yet)
│   └── QueryTooLarge          a query is larger, needs more memory, or gives more, than it may
├── CatalogError           the object exists already, is in use, or is not there
├── InvalidRow             a row is refused: NULL key, wrong type, too large
├── Conflict               a row was not as the writer expected it
│   └── DuplicateKey           an INSERT met an existing key
├── NotReady               a view is still being loaded
│   └── PlanOutdated           a view was replaced while a query over it began; run it again
├── PartialKey             a read of a partial view does not name the key that it is partial by
├── ViewFailed             a view was set aside because its epochs failed; repair or replace it
├── EpochGone              the epoch asked for is no longer kept
├── InvalidReadPoint       `at` is neither "stable", "latest" nor the number of an epoch
├── InvalidToken           a session, feed or scan token is damaged, or of something else
├── Timeout                waiting for an epoch took too long
│   └── QueryTimeout           a query took longer than it may, and was ended
├── QueryCancelled         whoever asked for a query has gone, and it was ended
├── Overloaded             too much work waits, or runs; nothing was done
├── InvalidSetting         a server was given settings that are not safe or do not fit together
├── BackupError            a backup is missing, damaged, or cannot be restored there
├── PipelineError          an epoch failed; the message names the cause
│   ├── OperatorFailed         a part of the plan cannot process the rows of an epoch
│   └── Fenced                 a newer driver has taken over; this one must stop
└── StoreError             the store cannot do it
    ├── NoDatabase             there is no database at the url
    ├── FormatVersion          written by another version of viewkeep
    ├── Corrupt                the files are damaged
    ├── StoreFull              no room on the disk or in the map
    ├── Locked                 another process kept the write lock too long; nothing was written
    └── OutcomeUnknown         nobody can say yet whether a write was done
"""

from __future__ import annotations


class ViewkeepError(Exception):
    """Root of all errors that viewkeep raises on purpose."""


class SqlError(ViewkeepError):
    """A statement cannot be taken. `fragment` is the part of it that is to blame."""

    def __init__(self, message: str, *, fragment: str | None = None, hint: str | None = None):
        self.reason, self.fragment, self.hint = message, fragment, hint
        text = f"{message} (at: {fragment})" if fragment else message
        super().__init__(f"{text}. {hint}" if hint else text)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.reason, self.fragment, self.hint))


def _rebuild(kind: type[SqlError], reason: str, fragment: str | None, hint: str | None) -> SqlError:
    return kind(reason, fragment=fragment, hint=hint)


class SqlSyntaxError(SqlError):
    """The statement does not parse."""


class UnknownName(SqlError):
    """A table, view, column or function does not exist."""


class TypeMismatch(SqlError):
    """An expression or a value has the wrong type."""


class Unsupported(SqlError):
    """Valid SQL that viewkeep cannot keep incrementally; the hint says what would work."""


class QueryTooLarge(SqlError):
    """A query needs more memory, or gives more rows or bytes, than its limits allow."""


class CatalogError(ViewkeepError):
    """The object exists already, is in use, or is not there."""


class InvalidRow(ViewkeepError):
    """A row is refused: NULL key, wrong type, unknown column, or too large."""


class Conflict(ViewkeepError):
    """A row was not as the writer expected it; nothing of the batch was written."""


class DuplicateKey(Conflict):
    """An INSERT met a key that exists; nothing of the batch was written."""


class NotReady(ViewkeepError):
    """A view is still being loaded; the message says how far it is."""


class PlanOutdated(NotReady):
    """A view was replaced by one with other columns while a query over it began; run it again."""


class PartialKey(ViewkeepError):
    """A read of a partial view that does not name a key by which the view is partial."""


class ViewFailed(ViewkeepError):
    """A view was set aside because its epochs failed; the message says since when and why."""


class EpochGone(ViewkeepError):
    """The epoch asked for is no longer kept; pin an epoch to keep it."""


class InvalidReadPoint(ViewkeepError, ValueError):
    """The `at` of a read is neither "stable", "latest" nor the number of an epoch."""


class InvalidToken(ViewkeepError):
    """A token is damaged, or belongs to another database, view or read."""


class Timeout(ViewkeepError):
    """Waiting for an epoch took too long; the message says how far behind the views are."""


class QueryTimeout(Timeout):
    """A query took longer than it may, and was ended."""


class QueryCancelled(ViewkeepError):
    """Whoever asked for a query has gone, and it was ended."""


class Overloaded(ViewkeepError):
    """More work waits or runs than is taken on; nothing was done. Try again."""


class InvalidSetting(ViewkeepError):
    """Settings of a server that are not safe, or do not fit together."""


class BackupError(ViewkeepError):
    """A backup is missing or damaged, or cannot be restored where it was asked for."""


class PipelineError(ViewkeepError):
    """An epoch failed."""


class OperatorFailed(PipelineError):
    """A part of the plan cannot process the rows of an epoch.

    `operator` is the operator's id, or `table:NUMBER` if rows of a base table cannot be read;
    `reason` is what it does and what it met.
    """

    def __init__(self, message: str, operator: str = "", reason: str = ""):
        super().__init__(message)
        self.operator, self.reason = operator, reason or message


class Fenced(PipelineError):
    """A newer driver has taken over this database; this one must stop."""


class StoreError(ViewkeepError):
    """The store cannot do what was asked."""


class NoDatabase(StoreError):
    """There is no database at the url; the message says how to make one."""


class FormatVersion(StoreError):
    """The database was written by another version of viewkeep."""


class Corrupt(StoreError):
    """The files of the database are damaged."""


class StoreFull(StoreError):
    """No room is left on the disk or in the memory map."""


class Locked(StoreError):
    """Another process, which the message names, kept the write lock; nothing was written."""


class OutcomeUnknown(StoreError):
    """Nobody can say yet whether a write was done; read before you write again."""
