"""The variables of a session: those that do something, and those that clients only ask for.

Law: a variable that is set either does what it says or changes nothing that the server does; one
that would promise what the server does not do is refused.
"""

from __future__ import annotations

from collections.abc import Callable

from viewkeep.access.reads import WAIT_SECONDS
from viewkeep.serve.mysql.faults import Fault
from viewkeep.serve.mysql.protocol.handshake import VERSION

CHARSET, COLLATION = "utf8mb4", "utf8mb4_bin"
# To tools this is the engine without transactions and foreign keys, so they do not count on them.
ENGINE = "MyISAM"
SQL_MODE = "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE"

_FIXED: dict[str, object] = {
    "version": VERSION,
    "version_comment": "viewkeep",
    "version_compile_machine": "",
    "version_compile_os": "",
    "auto_increment_increment": 1,
    "auto_increment_offset": 1,
    "character_set_database": CHARSET,
    "character_set_filesystem": "binary",
    "character_set_server": CHARSET,
    "character_set_system": CHARSET,
    "collation_database": COLLATION,
    "collation_server": COLLATION,
    "default_storage_engine": ENGINE,
    "have_ssl": "DISABLED",
    "init_connect": "",
    "license": "Apache-2.0",
    "lower_case_table_names": 1,
    "performance_schema": 0,
    "query_cache_size": 0,
    "query_cache_type": "OFF",
    "read_only": 0,
    "storage_engine": ENGINE,
    "system_time_zone": "UTC",
}
_FREE: dict[str, object] = {  # may be set, and change nothing
    "foreign_key_checks": 1,
    "group_concat_max_len": 1_048_576,
    "interactive_timeout": 28_800,
    "lc_time_names": "en_US",
    "lock_wait_timeout": 31_536_000,
    "max_execution_time": 0,
    "net_buffer_length": 16_384,
    "net_read_timeout": 30,
    "net_write_timeout": 60,
    "session_track_schema": 0,
    "sql_auto_is_null": 0,
    "sql_log_bin": 1,
    "sql_notes": 1,
    "sql_quote_show_create": 1,
    "sql_safe_updates": 0,
    "sql_select_limit": 18_446_744_073_709_551_615,
    "sql_warnings": 0,
    "transaction_isolation": "READ-COMMITTED",
    "transaction_read_only": 0,
    "tx_isolation": "READ-COMMITTED",
    "tx_read_only": 0,
    "unique_checks": 1,
}
_OTHER_LANGUAGE = {
    "ANSI", "ANSI_QUOTES", "PIPES_AS_CONCAT", "NO_BACKSLASH_ESCAPES", "IGNORE_SPACE",
    "HIGH_NOT_PRECEDENCE", "ORACLE", "MSSQL", "POSTGRESQL", "DB2",
}  # fmt: skip
_CODECS = {"latin1": "latin-1", "ascii": "latin-1", "binary": "utf-8"}
_CODECS |= dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), "utf-8")
_CHOICES = {
    "viewkeep_at": ("default", "stable", "latest"),
    "viewkeep_constraints": ("refuse", "ignore"),
    "viewkeep_rollback": ("error", "warn"),
}

_SECONDS = {"viewkeep_timeout": (0, 3600), "wait_timeout": (1, 31_536_000)}


class Variables:
    """The variables of one session. `computed` are those that the session works out itself."""

    def __init__(
        self,
        given: dict[str, object],
        computed: dict[str, Callable[[], object]],
        idle_seconds: float = 28_800.0,
    ):
        self._most_idle = idle_seconds
        self._values: dict[str, object] = {
            **_FIXED,
            **_FREE,
            "autocommit": 1,
            "character_set_client": CHARSET,
            "character_set_connection": CHARSET,
            "character_set_results": CHARSET,
            "collation_connection": COLLATION,
            "sql_mode": SQL_MODE,
            "time_zone": "+00:00",
            "viewkeep_at": "default",
            "viewkeep_constraints": "refuse",
            "viewkeep_rollback": "error",
            "viewkeep_timeout": WAIT_SECONDS,
            "wait_timeout": idle_seconds,
            **given,
        }
        self._fixed = set(_FIXED) | set(given)
        self._computed = computed
        self.codec = "utf-8"  # of texts that come and go

    def get(self, name: str) -> object:
        """The value of a variable; Fault 1193 if there is none."""
        if name in self._computed:
            return self._computed[name]()
        if name not in self._values:
            raise Fault(1193, "HY000", f"Unknown system variable '{name}'")
        return self._values[name]

    def all(self) -> list[tuple[str, str]]:
        """All of them as SHOW VARIABLES prints them."""
        names = sorted({*self._values, *self._computed})
        return [(name, _shown(name, self.get(name))) for name in names]

    def text(self, name: str) -> str:
        return str(self._values[name])

    @property
    def autocommit(self) -> bool:
        return bool(self._values["autocommit"])

    @property
    def timeout(self) -> float:
        return float(str(self._values["viewkeep_timeout"]))

    @property
    def idle_seconds(self) -> float:
        """Seconds that the client may say nothing; it may lower what the server allows."""
        return min(self._most_idle, float(str(self._values["wait_timeout"])))

    def set(self, name: str, value: object) -> None:
        """Set a variable."""
        self.get(name)
        if name in self._fixed or name in self._computed:
            raise Fault(1238, "HY000", f"Variable '{name}' is a read only variable")
        self._values[name] = self._checked(name, value)

    def set_names(self, charset: str) -> None:
        """SET NAMES."""
        for name in ("client", "connection", "results"):
            self.set(f"character_set_{name}", charset)

    def _checked(self, name: str, value: object) -> object:
        wrong = Fault(1231, "42000", f"Variable '{name}' can't be set to the value of '{value}'")
        if name == "autocommit":
            truth = {"1": 1, "0": 0, "ON": 1, "OFF": 0, "TRUE": 1, "FALSE": 0}
            if str(value).upper() not in truth:
                raise wrong
            return truth[str(value).upper()]
        if name in _CHOICES:
            if str(value).lower() not in _CHOICES[name]:
                wrong.message += f"; it is one of {', '.join(_CHOICES[name])}"
                raise wrong
            return str(value).lower()
        if name in _SECONDS:
            try:
                seconds = float(str(value))
            except ValueError:
                raise wrong from None
            least, most = _SECONDS[name]
            if not least <= seconds <= most:
                raise wrong
            return seconds
        if name.startswith("character_set_"):
            return self._charset(name, value)
        if name == "sql_mode" and _OTHER_LANGUAGE & set(str(value).upper().split(",")):
            wrong.message += ": statements would be read differently"
            raise wrong
        if name == "time_zone" and str(value).upper() not in ("+00:00", "UTC", "SYSTEM"):
            raise Fault(1298, "HY000", f"times are in UTC here; there is no time zone '{value}'")
        return value

    def _charset(self, name: str, value: object) -> object:
        charset = CHARSET if value is None else str(value).lower()
        if charset not in _CODECS:
            raise Fault(1115, "42000", f"Unknown character set: '{value}'; utf8mb4 is there")
        self.codec = _CODECS[charset]
        return charset


def _shown(name: str, value: object) -> str:
    if name in ("autocommit", "foreign_key_checks", "unique_checks", "read_only"):
        return "ON" if value else "OFF"
    return f"{value:g}" if isinstance(value, float) else str(value)
