"""One client's session: runs its statements, keeps its variables, warnings and promises.

Law: a session reads its own writes and never goes back in time; while it waits for an epoch it
holds no thread. Every statement is a transaction of its own: BEGIN and COMMIT are taken, and a
ROLLBACK that would have to undo a write says so instead.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from sqlglot import exp

from viewkeep.access.reads import At
from viewkeep.access.results import Result
from viewkeep.access.sessions import Session
from viewkeep.access.statements.prepared import Prepared
from viewkeep.errors import NotReady, OutcomeUnknown, ViewkeepError
from viewkeep.serve.mysql.catalog.definitions import define
from viewkeep.serve.mysql.catalog.information_schema import Information
from viewkeep.serve.mysql.catalog.shows import Shows
from viewkeep.serve.mysql.catalog.system_queries import System
from viewkeep.serve.mysql.catalog.variables import Variables
from viewkeep.serve.mysql.dialect import rewrite
from viewkeep.serve.mysql.dialect.assignments import assignments_of
from viewkeep.serve.mysql.dialect.rewrite import SYSTEM_SCHEMAS, Surroundings
from viewkeep.serve.mysql.dialect.translate import Translation, Translator
from viewkeep.serve.mysql.faults import (
    DATABASE_NAME,
    Fault,
    fault_of,
    no_database,
    syntax,
    unsupported,
)
from viewkeep.serve.mysql.literals import SplitStatement, split
from viewkeep.serve.mysql.protocol.answers import Answer, Done, RowsAnswer, frame_rows
from viewkeep.serve.mysql.protocol.fields import Field, field_of, plain_text
from viewkeep.serve.mysql.protocol.handshake import VERSION
from viewkeep.serve.mysql.session.remembered import Remembered
from viewkeep.serve.mysql.session.transactions import Transactions
from viewkeep.serve.mysql.session.who import Who
from viewkeep.serve.mysql.writes.insertions import insertion_of
from viewkeep.serve.mysql.writes.sequences import Sequences
from viewkeep.serve.mysql.writes.writer import Target, Writer
from viewkeep.serve.service import Service
from viewkeep.types import Schema

_WARNINGS, _READY = 64, 50  # at most, in one session
_LONGEST = 4 * 1024 * 1024  # characters of a text without its constants: an INSERT of many rows
_FEW_ROWS = 100  # that are made Python's values in the event loop
_NAME = r"(`[^`]+`|[\w$]+)"
_USE = re.compile(rf"USE\s+{_NAME}$", re.IGNORECASE)

P = ParamSpec("P")
T = TypeVar("T")


class Shared:
    """What all sessions of a server share."""

    def __init__(self, service: Service):
        self.service, self.db = service, service.db
        self.translator = Translator()
        self.information = Information(self.db)
        self.system = System(self.information)
        self.shows = Shows(self.information, self.system)
        self.sequences = Sequences(self.db)
        self.started, self.queries = time.monotonic(), 0


class ClientSession:
    """The session of one connection. One statement runs at a time."""

    def __init__(self, shared: Shared, who: Who, port: int):
        self._shared, self._db, self._who = shared, shared.db, who
        self._port = port
        self.reset()

    def reset(self) -> None:
        """Begin anew, as COM_RESET_CONNECTION and another user do; the promises are kept."""
        if not hasattr(self, "_session"):
            self._session: Session = self._db.session(timeout=0)
        settings = self._shared.service.settings
        self.variables = Variables(
            {"max_allowed_packet": settings.max_body, "port": self._port, "hostname": "viewkeep"},
            {
                "viewkeep_session": lambda: self._session.token,
                "last_insert_id": lambda: self._last_id,
                "identity": lambda: self._last_id,
                "warning_count": lambda: len(self.warnings),
                "error_count": lambda: 0,
                "pseudo_thread_id": lambda: self._who.number,
            },
            settings.idle_seconds,
        )
        self.database = ""
        self.warnings: list[tuple[str, int, str]] = []
        self.transactions = Transactions()
        self._ready: dict[str, Prepared] = {}
        self._remembered = Remembered(settings.max_body)
        self._last_id = self._row_count = self._found = 0
        self._around = Surroundings(
            self._schema,
            DATABASE_NAME,
            lambda name: self.variables.get(name),
            lambda name: self._remembered.get(name),
            self._functions(),
        )

    def become(self, who: Who) -> None:
        """Serve another user from now on."""
        self._who = who

    # -- statements ----------------------------------------------------------------------------

    async def read(self, text: str) -> list[SplitStatement]:
        """The statements of a text; a long one is read in a thread."""
        most = self._shared.service.settings.max_statements
        if len(text) < 20_000:
            return split(text, _LONGEST, most)
        return await self._shared.service.parse(split, text, _LONGEST, most)

    async def run(self, statement: SplitStatement) -> Answer:
        """Run one statement."""
        self._shared.queries += 1
        if statement.parameters:
            raise syntax("the statement has ? for values: prepare it")
        known = self._known(statement)
        if known is not None:
            return known
        word = statement.words[0] if statement.words else ""
        if word not in ("INSERT", "REPLACE"):  # these are seldom parsed
            await self._check_length(statement)
        if word != "SHOW" or "WARNINGS" not in statement.words:
            self.warnings = []
        handler = _HANDLERS.get(word)
        if handler is None:
            if word in _REFUSED:
                raise unsupported(f"{word} is not taken")
            raise syntax(f"syntax error near: {statement.text[:80]!r}")
        self._who.check(statement)
        if not self.variables.autocommit and word not in _OUTSIDE:
            self.transactions.open = True
        answer = await handler(self, statement)
        self._row_count = answer.affected if isinstance(answer, Done) else -1
        return answer

    async def _check_length(self, statement: SplitStatement) -> None:
        """Fault if a statement is too long to be parsed; a long one is looked at in a thread."""
        limits = self._shared.service.settings
        if len(statement.shape) <= limits.max_tokens:
            statement.check_length(limits.max_sql, limits.max_tokens)
        else:
            check = statement.check_length
            await self._shared.service.parse(check, limits.max_sql, limits.max_tokens)

    async def columns(self, statement: SplitStatement) -> list[Field]:
        """The columns that a prepared statement will have, as far as they are known before."""
        if statement.words[0] not in ("SELECT", "WITH"):
            return []
        await self._check_length(statement)
        refused = None
        for guess in (None, 1):  # some places take no NULL, LIMIT among them
            try:
                guessed = statement.bound([guess] * statement.parameters)
                translation = await self._translation(guessed)
                if translation.system is not None:
                    return []
                return await self._run(self._columns_of, translation)
            except (Fault, ViewkeepError) as error:
                refused = refused or fault_of(error)
        if refused is not None and refused.code in (1064, 1146, 1054):
            raise refused
        return []  # it depends on the values, or it says itself what is wrong when it is run

    def known(self, text: str) -> RowsAnswer | None:
        """The answer to a text that is one read by key, met before; else None."""
        statements = split(text)
        if len(statements) != 1:
            return None
        found = self._known(statements[0])
        self._shared.queries += found is not None
        return found

    # -- queries -------------------------------------------------------------------------------

    def _known(self, statement: SplitStatement) -> RowsAnswer | None:
        """The answer to a read by key that was translated before: the fast way, without waiting.

        None where it is not that simple. If the plan has changed the read itself fails, and the
        statement is translated anew.
        """
        found = self._shared.translator.find_point(statement)
        service = self._shared.service
        if found is None or self.database != DATABASE_NAME or service.is_slow:
            return None
        ready = self._ready.get(found.text)
        try:
            if ready is None:
                if len(self._ready) >= _READY:
                    self._ready.clear()
                ready = self._ready[found.text] = self._session.prepare(found.text)
            with service.timed():
                result = ready.point(*found.values(statement), at=self._at())
        except ViewkeepError:
            return None
        if result is None:
            return None
        if self.warnings:
            self.warnings = []
        if not self.variables.autocommit:
            self.transactions.open = True
        self._row_count, self._found = -1, len(result)
        return found.rows(result)

    def _at(self) -> At | None:
        chosen = self.variables.text("viewkeep_at")
        if chosen == "default":
            return None
        return "stable" if chosen == "stable" else "latest"

    async def _query(self, statement: SplitStatement) -> RowsAnswer:
        translation = await self._translation(statement)
        if translation.system is not None:
            tree = translation.system
            rows = await self._run(self._shared.system.answer, tree, self._around)
            self._found = len(rows.rows)
            return rows
        return await self._read(translation, statement)

    async def _translation(self, statement: SplitStatement) -> Translation:
        version = self._db.catalog.current().version
        translator = self._shared.translator
        if self.database == DATABASE_NAME:
            found = translator.find(statement, version)
            if found is not None:
                return found
        return await self._run(translator.make, statement, version, self._around)

    async def _read(self, translation: Translation, statement: SplitStatement) -> RowsAnswer:
        """Run a query over tables and views, when the promises of the session can be kept."""
        at = self._at()
        values = translation.values(statement)

        async def read() -> Result:
            if translation.is_point is None:
                translation.is_point = await self._run(self._is_point, translation, statement)
            return await self._run(self._session.sql, translation.text, values, at=at)

        waits = at == "stable" or (at is None and self._reads_view(translation))
        result = await self._promised(read) if waits else await read()
        most = self._shared.service.settings.max_rows
        if len(result) > most:
            raise Fault(
                1104, "42000", f"the answer has {len(result):,} rows, {most:,} is the limit: LIMIT"
            )
        self._found = len(result)
        if len(result) > _FEW_ROWS:
            return await self._shared.service.parse(translation.rows, result)
        return translation.rows(result)

    async def _promised(self, read: Callable[[], Awaitable[Result]]) -> Result:
        """Read as soon as an epoch is published that the session may see."""
        hub, began = self._shared.service.hub, time.monotonic()
        while True:
            seen = hub.published.epoch
            waited = time.monotonic() - began
            late: Exception | None = self._session.behind("what the query reads", waited)
            if late is None:
                try:
                    return await read()
                except NotReady as error:
                    # A view that this session has made is one of its writes.
                    if not self._session.made_views:
                        raise
                    late = error
            most = self._shared.service.settings.max_seconds
            left = min(self.variables.timeout, most) - waited
            if left <= 0:
                raise late
            try:
                await hub.wait(seen, left)
            except TimeoutError:
                continue

    def _reads_view(self, translation: Translation) -> bool:
        views = self._db.catalog.current().views
        return any(name in views for name in translation.reads)

    def _is_point(self, translation: Translation, statement: SplitStatement) -> bool:
        version = self._db.catalog.current().version
        is_point = self._db.prepare(translation.text).is_point
        if is_point:
            self._shared.translator.note_point(statement, version)
        return is_point

    def _columns_of(self, translation: Translation) -> list[Field]:
        columns = self._db.prepare(translation.text).columns
        if columns is None:
            return []
        names = translation.names or [name for name, _ in columns]
        pairs = zip(names, columns, strict=True)
        return [field_of(name, type.polars) for name, (_, type) in pairs]

    async def _explain(self, statement: SplitStatement) -> RowsAnswer:
        described = await self._run(self._shared.shows.describe, statement)
        if described is not None:
            return described
        rest = re.sub(r"^(?:EXPLAIN|DESCRIBE|DESC)\s+", "", statement.shape, flags=re.IGNORECASE)
        rest = re.sub(r"^FORMAT\s*=\s*\w+\s+", "", rest, flags=re.IGNORECASE)
        inner = SplitStatement(rest, statement.values)
        if inner.words[0] not in ("SELECT", "WITH"):
            raise unsupported("EXPLAIN is for SELECT: other statements have no plan")

        def explain() -> RowsAnswer:
            tree = rewrite.parse(inner)
            rewrite.localise(tree, self._around)
            tree = rewrite.rewrite(rewrite.settle(tree, self._around), self._around)
            return frame_rows(self._session.sql(f"EXPLAIN {rewrite.spark_sql(tree)}").polars())

        return await self._run(explain)

    async def _show(self, statement: SplitStatement) -> RowsAnswer:
        status = [
            ("Queries", str(self._shared.queries)),
            ("Ssl_cipher", ""),
            ("Uptime", str(int(time.monotonic() - self._shared.started))),
        ]
        shows, variables = self._shared.shows, self.variables.all()
        return await self._run(shows.show, statement, variables, list(self.warnings), status)

    # -- writes --------------------------------------------------------------------------------

    async def _insert(self, statement: SplitStatement) -> Done:
        done = await self._write(self._insert_now, statement)
        if done is None:
            done = await self._insert_query(statement)
        self._wrote(done.affected)
        self._last_id = done.last_id or self._last_id
        return done

    def _insert_now(self, statement: SplitStatement) -> Done | None:
        limits = self._shared.service.settings
        check = partial(statement.check_length, limits.max_sql, limits.max_tokens)
        insertion = insertion_of(statement, self._around, self._evaluate, check)
        if insertion is None:
            return None
        if len(insertion.rows) > limits.max_written:
            raise Fault(1153, "HY000", f"an INSERT has at most {limits.max_written:,} rows here")
        writer = Writer(
            self._db, self._shared.sequences, self._warn, self._run_tree, limits.max_key
        )
        return writer.insert(self._session, insertion)

    async def _insert_query(self, statement: SplitStatement) -> Done:
        """INSERT ... SELECT: the query waits as reads do."""
        text = await self._run(self._insert_query_text, statement)

        async def insert() -> Result:
            return await self._write(self._session.sql, text)

        result = await self._promised(insert)
        return Done(result.affected, 0, f"Records: {result.affected}  Duplicates: 0  Warnings: 0")

    def _insert_query_text(self, statement: SplitStatement) -> str:
        """An INSERT ... SELECT in our rewrite."""
        shape = statement.shape
        replace = statement.words[0] == "REPLACE"
        if replace:
            shape = "INSERT" + shape[len("REPLACE") :]
        tree = rewrite.parse(SplitStatement(shape, statement.values))
        if tree.args.get("ignore") or tree.args.get("conflict"):
            raise unsupported("INSERT ... SELECT takes neither IGNORE nor ON DUPLICATE KEY UPDATE")
        rewrite.localise(tree, self._around)
        tree = rewrite.rewrite(rewrite.settle(tree, self._around), self._around)
        text = rewrite.spark_sql(tree)
        if replace:
            text = re.sub(r"^INSERT\s+INTO", "INSERT OR REPLACE INTO", text, count=1)
        return text

    async def _change(self, statement: SplitStatement) -> Done:
        translation = await self._translation(statement)
        values = translation.values(statement)
        result = await self._write(self._change_now, translation, values)
        self._wrote(result.affected)
        n = result.affected
        info = f"Rows matched: {n}  Changed: {n}  Warnings: 0"
        return Done(n, 0, info if statement.words[0] == "UPDATE" else "")

    def _change_now(self, translation: Translation, values: list[Any]) -> Result:
        if (translation.assigned or translation.nulled) and len(translation.reads) == 1:
            target = Target(self._db, *translation.reads)
            columns = dict(translation.assigned)
            for name in translation.nulled:
                target.coerced(name, None)
            values = [
                target.coerced(columns[place], value) if place in columns else value
                for place, value in zip(translation.places, values, strict=True)
            ]
        return self._session.sql(translation.text, values)

    async def _truncate(self, statement: SplitStatement) -> Done:
        match = re.fullmatch(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}", statement.shape, re.IGNORECASE)
        if match is None:
            raise syntax("TRUNCATE takes the name of a table")
        await self._change(SplitStatement(f"DELETE FROM {match[1]}", ()))
        return Done()

    async def _define(self, statement: SplitStatement) -> Done:
        if statement.words[:2] == ["DROP", "PREPARE"]:
            return await self._deallocate(statement)
        ignore = self.variables.text("viewkeep_constraints") == "ignore"
        arguments = (statement, self._around, ignore, lambda text: self._warn(1235, text))
        await self._write(define, self._db, self._session, *arguments)
        self.transactions.settle()  # as in MySQL, a definition ends the transaction before it
        return Done()

    def _run_tree(self, tree: exp.Expr) -> int:
        tree = rewrite.rewrite(rewrite.settle(tree, self._around), self._around)
        return self._session.sql(rewrite.spark_sql(tree)).affected

    def _evaluate(self, nodes: list[exp.Expr]) -> list[Any]:
        """The values of expressions without columns."""
        if not nodes:
            return []
        if any(node.find(exp.Query) for node in nodes):
            raise unsupported("a subquery is not taken here")
        query = exp.select(*[exp.alias_(node, f"c{n}") for n, node in enumerate(nodes)])
        return list(self._shared.system.answer(query, self._around).rows[0])

    # -- transactions --------------------------------------------------------------------------

    async def _begin(self, statement: SplitStatement) -> Done:
        if statement.words[0] == "START" and statement.words[1:2] != ["TRANSACTION"]:
            raise unsupported(f"this statement is not taken: {statement.text[:80]}")
        self.transactions.begin()
        return Done()

    async def _commit(self, statement: SplitStatement) -> Done:
        self.transactions.settle()
        return Done()

    async def _rollback(self, statement: SplitStatement) -> Done:
        stays = self.transactions.rollback(statement.shape)
        if stays is None:
            return Done()
        if self.variables.text("viewkeep_rollback") == "warn":
            self._warn(1196, stays)
            return Done()
        raise Fault(1196, "HY000", f"{stays} (SET viewkeep_rollback = 'warn' for a warning)")

    async def _savepoint(self, statement: SplitStatement) -> Done:
        self.transactions.savepoint(statement.shape)
        return Done()

    def _wrote(self, rows: int) -> None:
        if rows:
            self.transactions.wrote()

    # -- the session itself --------------------------------------------------------------------

    def use(self, name: str) -> None:
        """USE, COM_INIT_DB."""
        known = name.lower()
        if known != DATABASE_NAME and known not in SYSTEM_SCHEMAS:
            raise no_database(name)
        self.database = self._around.database = known

    async def _use(self, statement: SplitStatement) -> Done:
        match = _USE.match(statement.shape)
        if match is None:
            raise syntax("USE takes the name of a database")
        self.use(match[1].strip("`"))
        return Done()

    async def _set(self, statement: SplitStatement) -> Done:
        for item in await self._run(assignments_of, statement, self._evaluate):
            if item.own:
                self._remembered.set(item.name, item.value)
            elif item.charset:
                self.variables.set_names(str(item.value))
            elif item.name == "viewkeep_session":
                # The token replaces what this session has promised so far.
                self._session = await self._shared.service.session(str(item.value))
                self._ready = {}
            elif str(item.value).upper() != "DEFAULT" or item.name.startswith("viewkeep_"):
                self.variables.set(item.name, item.value)
                if item.name == "autocommit" and self.variables.autocommit:
                    self.transactions.settle()
        return Done()

    async def _prepare(self, statement: SplitStatement) -> Done:
        self._remembered.prepare(statement)
        return Done()

    async def _execute(self, statement: SplitStatement) -> Answer:
        return await self.run(self.bind(*self._remembered.executed(statement)))

    async def _deallocate(self, statement: SplitStatement) -> Done:
        self._remembered.deallocate(statement)
        return Done()

    def bind(self, statement: SplitStatement, values: Sequence[Any]) -> SplitStatement:
        """A prepared statement with values for its `?`."""
        if len(values) != statement.parameters:
            raise Fault(
                1210, "HY000", f"{statement.parameters} values are due, {len(values)} were given"
            )
        # A text in the place of a time means that time.
        given = [plain_text(v) if isinstance(v, dt.date | dt.time) else v for v in values]
        return statement.bound(given)

    def failed(self, fault: Fault) -> None:
        """The statement has failed: SHOW WARNINGS says so, too."""
        self.warnings = [("Error", fault.code, fault.message[:500])]

    def _warn(self, code: int, text: str) -> None:
        if len(self.warnings) < _WARNINGS:
            self.warnings.append(("Warning", code, text[:500]))

    def _schema(self, name: str) -> Schema | None:
        plan = self._db.catalog.current()
        found = plan.tables.get(name) or plan.views.get(name)
        return None if found is None else found.schema

    async def _run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._shared.service.run(work, *args, **kwargs)

    async def _write(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await self._shared.service.write(work, *args, **kwargs)
        except OutcomeUnknown:
            self._wrote(1)  # for all we know
            raise

    def _functions(self) -> dict[str, Callable[[], object]]:
        def now() -> dt.datetime:
            return dt.datetime.now(dt.UTC).replace(tzinfo=None)

        def user() -> str:
            return f"{self._who.user}@localhost"

        functions: dict[str, Callable[[], object]] = {
            "database": lambda: self.database or None,
            "version": lambda: VERSION,
            "connection_id": lambda: self._who.number,
            "last_insert_id": lambda: self._last_id,
            "row_count": lambda: self._row_count,
            "found_rows": lambda: self._found,
            "curdate": lambda: now().date(),
            "convert_tz": lambda: None,  # no time zones are there but UTC
        }
        functions |= dict.fromkeys(("user", "current_user", "session_user", "system_user"), user)
        return functions | dict.fromkeys(("now", "sysdate", "utc_timestamp"), now)


_OUTSIDE = frozenset({"SET", "USE", "SHOW", "COMMIT", "ROLLBACK", "BEGIN", "START", "DESCRIBE"})
_REFUSED = frozenset(
    ["ANALYZE", "CALL", "CHECK", "CHECKSUM", "DO", "FLUSH", "GRANT", "HANDLER", "KILL", "LOAD",
     "LOCK", "OPTIMIZE", "REPAIR", "RESET", "REVOKE", "TABLE", "XA"]
)  # fmt: skip
_HANDLERS: dict[str, Callable[[ClientSession, SplitStatement], Awaitable[Answer]]] = {
    **dict.fromkeys(("SELECT", "WITH", "VALUES"), ClientSession._query),
    **dict.fromkeys(("INSERT", "REPLACE"), ClientSession._insert),
    **dict.fromkeys(("UPDATE", "DELETE"), ClientSession._change),
    **dict.fromkeys(("CREATE", "DROP", "ALTER", "RENAME"), ClientSession._define),
    **dict.fromkeys(("EXPLAIN", "DESCRIBE", "DESC"), ClientSession._explain),
    **dict.fromkeys(("BEGIN", "START"), ClientSession._begin),
    **dict.fromkeys(("SAVEPOINT", "RELEASE"), ClientSession._savepoint),
    **dict.fromkeys(("COMMIT", "UNLOCK"), ClientSession._commit),
    "ROLLBACK": ClientSession._rollback,
    "TRUNCATE": ClientSession._truncate,
    "SHOW": ClientSession._show,
    "SET": ClientSession._set,
    "USE": ClientSession._use,
    "PREPARE": ClientSession._prepare,
    "EXECUTE": ClientSession._execute,
    "DEALLOCATE": ClientSession._deallocate,
}
