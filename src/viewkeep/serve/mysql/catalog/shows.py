"""SHOW, DESCRIBE: what is there, as MySQL prints it.

Law: names, order and number of the columns are MySQL's, since clients read them by both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from viewkeep.deferred import pl
from viewkeep.ops.functions.like import like_pattern
from viewkeep.serve.mysql.catalog.declare import NOW, Declared
from viewkeep.serve.mysql.catalog.information_schema import SCHEMAS, Information, extra_of
from viewkeep.serve.mysql.catalog.system_queries import System
from viewkeep.serve.mysql.catalog.variables import CHARSET, COLLATION, ENGINE
from viewkeep.serve.mysql.dialect.rewrite import SYSTEM_SCHEMAS, parse
from viewkeep.serve.mysql.faults import DATABASE_NAME, no_database, unsupported
from viewkeep.serve.mysql.literals import SplitStatement
from viewkeep.serve.mysql.protocol.answers import RowsAnswer, frame_rows, text_rows

_INDEX = (
    "Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Collation", "Cardinality",
    "Sub_part", "Packed", "Null", "Index_type", "Comment", "Index_comment", "Visible", "Expression",
)  # fmt: skip
_STATUS = (
    "Name", "Engine", "Version", "Row_format", "Rows", "Avg_row_length", "Data_length",
    "Max_data_length", "Index_length", "Data_free", "Auto_increment", "Create_time", "Update_time",
    "Check_time", "Collation", "Checksum", "Create_options", "Comment",
)  # fmt: skip
_EMPTY = {
    "TRIGGERS": "Trigger Event Table Statement Timing Created sql_mode Definer",
    "EVENTS": "Db Name Definer Time_zone Type Status",
    "PROCEDURE STATUS": "Db Name Type Definer Modified Created Security_type Comment",
    "FUNCTION STATUS": "Db Name Type Definer Modified Created Security_type Comment",
    "PLUGINS": "Name Status Type Library License",
    "OPEN TABLES": "Database Table In_use Name_locked",
    "ERRORS": "Level Code Message",
    "PRIVILEGES": "Privilege Context Comment",
}
# What the parser does not know under these names.
_SYNONYMS = (
    (re.compile(r"^SHOW\s+((?:FULL\s+)?)FIELDS\b", re.IGNORECASE), r"SHOW \1COLUMNS"),
    (re.compile(r"^SHOW\s+(?:KEYS|INDEXES)\b", re.IGNORECASE), "SHOW INDEX"),
    (re.compile(r"^SHOW\s+CHARSET\b", re.IGNORECASE), "SHOW CHARACTER SET"),
    (re.compile(r"^SHOW\s+GRANTS\b.*", re.IGNORECASE | re.DOTALL), "SHOW GRANTS"),
    (re.compile(r"^SHOW\s+STORAGE\s+ENGINES\b", re.IGNORECASE), "SHOW ENGINES"),
    (re.compile(r"^SHOW\s+(\w+)\s+(FROM|IN)\s+", re.IGNORECASE), r"SHOW \1 FROM "),
)
_DESCRIBE = re.compile(
    r"^(?:DESCRIBE|DESC|EXPLAIN)\s+(?:(?:`[^`]+`|\w+)\s*\.\s*)?(`[^`]+`|[\w$]+)\s*"
    r"(`[^`]+`|[\w$]+)?$",
    re.IGNORECASE,
)

Warning = tuple[str, int, str]


class Shows:
    """Answers SHOW and DESCRIBE for all sessions."""

    def __init__(self, information: Information, system: System):
        self._information, self._system = information, system

    def describe(self, statement: SplitStatement) -> RowsAnswer | None:
        """DESCRIBE t [column]; None if the statement explains a query."""
        match = _DESCRIBE.match(statement.shape)
        if match is None:
            return None
        rows = self._columns(_bare(match[1]), full=False)
        if match[2] is None:
            return rows
        wanted = _bare(match[2])
        return RowsAnswer(rows.header, [row for row in rows.rows if row[0] == wanted])

    def show(
        self,
        statement: SplitStatement,
        variables: Sequence[tuple[str, str]],
        warnings: Sequence[Warning],
        status: Sequence[tuple[str, str]],
    ) -> RowsAnswer:
        """The answer to a SHOW; the rest is what the session knows of itself."""
        if re.fullmatch(r"SHOW\s+COUNT\s*\(\s*\*\s*\)\s+WARNINGS", statement.shape, re.IGNORECASE):
            return text_rows(["@@session.warning_count"], [[len(warnings)]])
        tree = parse(_renamed(statement))
        if not isinstance(tree, exp.Show):
            raise unsupported(f"this is not shown here: {statement.text[:80]}")
        database = tree.args.get("db")
        if database is not None and database.name.lower() not in (*SCHEMAS, *SYSTEM_SCHEMAS):
            raise no_database(database.name)
        shown = self._shown(tree, variables, warnings, status)
        return self._chosen(shown, tree)

    def _shown(
        self,
        tree: exp.Show,
        variables: Sequence[tuple[str, str]],
        warnings: Sequence[Warning],
        status: Sequence[tuple[str, str]],
    ) -> RowsAnswer:
        what, target = str(tree.this).upper(), tree.args.get("target")
        name = "" if target is None else target.name.lower()
        own = tree.args.get("db") is None or tree.args["db"].name.lower() == DATABASE_NAME
        match what:
            case "TABLES":
                return self._tables(bool(tree.args.get("full")), own)
            case "COLUMNS":
                return self._columns(name, full=bool(tree.args.get("full")))
            case "INDEX":
                return self._index(name)
            case "CREATE TABLE" | "CREATE VIEW":
                return self._create(name)
            case "CREATE DATABASE":
                text = f"CREATE DATABASE `{DATABASE_NAME}`"
                return text_rows(["Database", "Create Database"], [[DATABASE_NAME, text]])
            case "DATABASES":
                return text_rows(["Database"], [[schema] for schema in SCHEMAS])
            case "VARIABLES":
                return text_rows(["Variable_name", "Value"], variables)
            case "STATUS":
                return text_rows(["Variable_name", "Value"], status)
            case "WARNINGS":
                return text_rows(["Level", "Code", "Message"], warnings)
            case "TABLE STATUS":
                return self._table_status(own)
            case "ENGINES":
                names = ["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"]
                return self._as("engines", names)
            case "CHARACTER SET":
                names = ["Charset", "Description", "Default collation", "Maxlen"]
                return text_rows(names, [[CHARSET, "UTF-8 Unicode", COLLATION, 4]])
            case "COLLATION":
                names = ["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"]
                return text_rows(names, [[COLLATION, CHARSET, 46, "Yes", "Yes", 1]])
            case "GRANTS":
                return text_rows(["Grants"], [["GRANT ALL PRIVILEGES ON *.* TO `any`@`%`"]])
            case "PROCESSLIST":
                names = ["Id", "User", "Host", "db", "Command", "Time", "State", "Info"]
                return text_rows(names, [])
        if what in _EMPTY:
            return text_rows(_EMPTY[what].split(), [])
        raise unsupported(f"SHOW {what} is not there")

    def _chosen(self, rows: RowsAnswer, tree: exp.Show) -> RowsAnswer:
        like, where = tree.args.get("like"), tree.args.get("where")
        if like is not None:
            matches = _matcher(like.name)
            return RowsAnswer(rows.header, [row for row in rows.rows if matches(str(row[0]))])
        if where is not None:
            names = [field.name for field in rows.fields]
            frame = pl.DataFrame(rows.rows, schema=names, orient="row", infer_schema_length=None)
            return frame_rows(self._system.filtered(frame, where))
        return rows

    def _tables(self, full: bool, own: bool) -> RowsAnswer:
        relations = self._information.relations() if own else []
        names = [f"Tables_in_{DATABASE_NAME}"]
        if not full:
            return text_rows(names, [[name] for name, _ in relations])
        kinds = {True: "VIEW", False: "BASE TABLE"}
        return text_rows([*names, "Table_type"], [[name, kinds[view]] for name, view in relations])

    def _columns(self, name: str, full: bool) -> RowsAnswer:
        key = self._information.key(name)
        rows: list[list[Any]] = []
        for column in self._information.columns(name):
            row: list[Any] = [column.name, column.type]
            if full:
                row.append(COLLATION if "char" in column.type or "text" in column.type else None)
            row += ["YES" if column.nullable else "NO", "PRI" if column.name in key else ""]
            row += [column.default, extra_of(column)]
            if full:
                row += ["select,insert,update,references", ""]
            rows.append(row)
        names = ["Field", "Type", "Null", "Key", "Default", "Extra"]
        if full:
            names = [*names[:2], "Collation", *names[2:], "Privileges", "Comment"]
        return text_rows(names, rows)

    def _index(self, name: str) -> RowsAnswer:
        self._information.columns(name)  # an unknown table is an error
        rows = [
            [
                name,
                0,
                "PRIMARY",
                place,
                column,
                "A",
                None,
                None,
                None,
                "",
                "BTREE",
                "",
                "",
                "YES",
                None,
            ]
            for place, column in enumerate(self._information.key(name), 1)
        ]
        return text_rows(_INDEX, rows)

    def _create(self, name: str) -> RowsAnswer:
        sql = self._information.view_sql(name)
        if sql is not None:
            text = f"CREATE VIEW {_quoted(name)} AS {sql}"
            names = ["View", "Create View", "character_set_client", "collation_connection"]
            return text_rows(names, [[name, text, CHARSET, COLLATION]])
        lines = [_defined(column) for column in self._information.columns(name)]
        key = ",".join(map(_quoted, self._information.key(name)))
        body = ",\n  ".join([*lines, f"PRIMARY KEY ({key})"])
        options = f"ENGINE={ENGINE} DEFAULT CHARSET={CHARSET} COLLATE={COLLATION}"
        text = f"CREATE TABLE {_quoted(name)} (\n  {body}\n) {options}"
        return text_rows(["Table", "Create Table"], [[name, text]])

    def _table_status(self, own: bool) -> RowsAnswer:
        rows: list[list[Any]] = []
        for name, is_view in self._information.relations() if own else []:
            row: dict[str, Any] = dict.fromkeys(_STATUS)
            row |= {"Name": name, "Comment": "VIEW" if is_view else ""}
            if not is_view:
                row |= {"Engine": ENGINE, "Row_format": "Dynamic", "Collation": COLLATION}
            rows.append(list(row.values()))
        return text_rows(_STATUS, rows)

    def _as(self, table: str, names: list[str]) -> RowsAnswer:
        frame = self._information.table("information_schema", table)
        return frame_rows(frame, names)


def _renamed(statement: SplitStatement) -> SplitStatement:
    shape = statement.shape
    for pattern, name in _SYNONYMS:
        shape = pattern.sub(name, shape)
    return SplitStatement(shape, statement.values)


def _defined(column: Declared) -> str:
    """A column as SHOW CREATE TABLE prints it."""
    text = f"{_quoted(column.name)} {column.type}"
    if not column.nullable:
        text += " NOT NULL"
    if column.automatic:
        return f"{text} AUTO_INCREMENT"
    if column.default is not None:
        if column.default == NOW:
            return f"{text} DEFAULT CURRENT_TIMESTAMP(6)"
        quoted = column.default.replace("'", "''")
        return f"{text} DEFAULT '{quoted}'"
    return f"{text} DEFAULT NULL" if column.nullable else text


def _matcher(like: str) -> Callable[[str], bool]:
    """Whether a name is as a LIKE says, in any case.

    In MySQL, an escape before an ordinary character, or at the end, changes nothing.
    """

    def kept(escape: re.Match[str]) -> str:
        return escape[0] if escape[1] in ("%", "_", "\\") else escape[1] or "\\\\"

    pattern = like_pattern(re.sub(r"\\(.?)", kept, like.lower(), flags=re.DOTALL))
    assert pattern is not None
    return lambda name: pattern.matches(name.lower())


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _bare(name: str) -> str:
    return name.strip("`").lower()
