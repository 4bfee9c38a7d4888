"""Random SELECTs over random schemas, in the part of SQL that Spark and DuckDB mean alike.

Law: the answer of a generated query is one multiset whatever the engine. So integers never
overflow, nothing is divided by a column, orders of LIMIT and of row-dependent window functions are
total up to equal rows, and results that are rounded (averages, deviations) are only shown, never
compared, grouped or joined on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from .schemas import Table

T = TypeVar("T")

ROUNDED = "ROUNDED"  # the type of columns that may only be shown
NUMBERS = ("INT", "BIGINT", "DOUBLE", "DEC")
JOINS = ["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN"]
JOINS += ["LEFT SEMI JOIN", "LEFT ANTI JOIN"]
CONSTANTS = {
    "INT": ["-1", "0", "1", "2"],
    "BIGINT": ["CAST(1 AS BIGINT)", "CAST(2 AS BIGINT)"],
    "DOUBLE": ["0.5D", "1.0D"],
    "DEC": ["CAST(0.50 AS DECIMAL(8,2))", "CAST(1.00 AS DECIMAL(8,2))"],
    "STR": ["'a'", "'b'", "''"],
    "BOOL": ["TRUE", "FALSE"],
    "DATE": ["DATE '2024-01-01'", "DATE '2023-12-31'"],
    "TIME": ["TIMESTAMP '2024-01-01 10:00:00'"],
}


@dataclass(frozen=True)
class Col:
    """A column that can be referred to: its text and type."""

    text: str
    kind: str


@dataclass(frozen=True)
class Query:
    """A query and the columns that it shows."""

    sql: str
    columns: tuple[Col, ...]


@dataclass
class Generator:
    """Makes queries over tables and earlier views."""

    random: Random
    tables: list[Table]
    views: dict[str, tuple[Col, ...]] = field(default_factory=dict)
    ctes: list[tuple[str, Query]] = field(default_factory=list)
    names: int = 0

    def view(self) -> Query:
        """A query for a view, with the CTEs that it happened to use."""
        self.ctes, self.names = [], 0
        made = self.query(self.random.choice([0, 1, 1, 2]), final=True)
        if not self.ctes:
            return made
        named = ", ".join(f"{name} AS ({cte.sql})" for name, cte in self.ctes)
        return Query(f"WITH {named} {made.sql}", made.columns)

    def query(self, depth: int, types: list[str] | None = None, final: bool = False) -> Query:
        if depth > 0 and self.chance(0.2):
            return self.set_operation(depth, types)
        return self.select(depth, types, final)

    def set_operation(self, depth: int, types: list[str] | None) -> Query:
        left = self.select(depth - 1, types or self.some_types())
        kinds = [column.kind for column in left.columns]
        right = self.select(depth - 1, kinds)
        word = self.pick(
            [
                "UNION ALL",
                "UNION ALL",
                "UNION",
                "INTERSECT",
                "EXCEPT",
                "INTERSECT ALL",
                "EXCEPT ALL",
            ]
        )
        # Derived tables keep a LIMIT inside its branch.
        sql = f"SELECT * FROM ({left.sql}) l {word} SELECT * FROM ({right.sql}) r"
        return Query(sql, left.columns)

    # -- select --------------------------------------------------------------------------------

    def select(self, depth: int, types: list[str] | None = None, final: bool = False) -> Query:
        relation, scope = self.source(depth)
        where = f" WHERE {self.predicate(scope, depth)}" if self.chance(0.5) else ""
        body = f"FROM {relation}{where}"
        shape = self.pick(["plain", "plain", "group", "group", "distinct", "window", "total"])
        if shape == "group":
            made = self.grouped(scope, body, types, final)
        elif shape == "total":
            made = self.total(scope, body, types, final)
        elif shape == "window" and types is None:
            made = self.windowed(scope, body)
        else:
            wanted = types or self.some_types()
            exprs = [Col(self.expr(scope, kind, 2, depth), kind) for kind in wanted]
            word = "SELECT DISTINCT" if shape == "distinct" else "SELECT"
            made = self.shown(exprs, lambda items: f"{word} {items} {body}")
        exact = all(column.kind != ROUNDED for column in made.columns)
        if exact and self.chance(0.12):
            order = ", ".join(c.text + self.pick(["", " DESC"]) for c in made.columns)
            offset = self.pick(["", "", " OFFSET 1", " OFFSET 2"])
            limited = f"{made.sql} ORDER BY {order} LIMIT {self.random.randint(1, 5)}{offset}"
            return Query(limited, made.columns)
        return made

    def shown(self, exprs: list[Col], around: Callable[[str], str]) -> Query:
        names = [self.name("c") for _ in exprs]
        items = ", ".join(f"{e.text} AS {name}" for e, name in zip(exprs, names, strict=True))
        columns = tuple(Col(name, e.kind) for e, name in zip(exprs, names, strict=True))
        return Query(around(items), columns)

    def grouped(self, scope: list[Col], body: str, types: list[str] | None, final: bool) -> Query:
        usable = [column for column in scope if column.kind != ROUNDED]
        count = self.random.randint(1, 2)
        keys = [self.key(self.pick(usable)) for _ in range(count)]
        keys = list({key.text: key for key in keys}.values())
        having = ""
        if self.chance(0.3):
            call = self.aggregate(scope, self.pick(["INT", "BIGINT"]), False)
            sign = self.pick([">", "<", ">=", "<>"])
            having = f" HAVING {call.text} {sign} {self.random.randint(0, 3)}"
        listed = ", ".join(key.text for key in keys)
        if types is None and self.chance(0.15):
            listed = f"{self.pick(['ROLLUP', 'CUBE'])} ({listed})"
        if types is None:
            wanted = [self.aggregate(scope, None, final) for _ in range(self.random.randint(1, 3))]
            exprs = [key for key in keys if self.chance(0.9)] + wanted
        else:
            exprs = [self.aggregate(scope, kind, False) for kind in types]
        return self.shown(exprs, lambda items: f"SELECT {items} {body} GROUP BY {listed}{having}")

    def total(self, scope: list[Col], body: str, types: list[str] | None, final: bool) -> Query:
        kinds: list[str | None] = list(types) if types else [None] * self.random.randint(1, 3)
        exprs = [self.aggregate(scope, kind, final and types is None) for kind in kinds]
        return self.shown(exprs, lambda items: f"SELECT {items} {body}")

    def windowed(self, scope: list[Col], body: str) -> Query:
        usable = [column for column in scope if column.kind != ROUNDED]
        total = ", ".join(c.text + self.pick(["", "", " DESC"]) for c in self.shuffled(usable))
        one = self.pick(usable).text
        by = self.pick(["", f"PARTITION BY {self.pick(usable).text} "])
        rows = self.pick(
            [
                "",
                " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
            ]
        )
        integers = [c for c in usable if c.kind in ("INT", "BIGINT")]
        value = self.pick(usable)
        calls = [
            Col(f"row_number() OVER ({by}ORDER BY {total})", "INT"),
            Col(f"rank() OVER ({by}ORDER BY {one})", "INT"),
            Col(f"dense_rank() OVER ({by}ORDER BY {one} DESC)", "INT"),
            Col(f"count(*) OVER ({by}ORDER BY {one})", "BIGINT"),
            Col(f"ntile(2) OVER ({by}ORDER BY {total})", "INT"),
            Col(f"lag({value.text}) OVER ({by}ORDER BY {total})", value.kind),
            Col(f"lead({value.text}, 2) OVER ({by}ORDER BY {total})", value.kind),
            Col(f"first_value({value.text}) OVER ({by}ORDER BY {total}{rows})", value.kind),
            Col(f"last_value({value.text}) OVER ({by}ORDER BY {total}{rows})", value.kind),
            Col(f"min({value.text}) OVER ({by}ORDER BY {total}{rows})", value.kind),
            Col(f"max({value.text}) OVER ({by}ORDER BY {one})", value.kind),
        ]
        if integers:
            number = self.pick(integers).text
            calls += [
                Col(f"sum({number}) OVER ({by}ORDER BY {total}{rows})", "BIGINT"),
                Col(f"sum({number}) OVER ({by.strip()})", "BIGINT"),
                Col(f"sum({number}) OVER ({by}ORDER BY {one})", "BIGINT"),
            ]
        chosen = [self.pick(calls) for _ in range(self.random.randint(1, 2))]
        exprs = [*self.some(usable, 1, 3), *chosen]
        qualify = ""
        if self.chance(0.3):
            limit = self.random.randint(1, 3)
            qualify = f" QUALIFY row_number() OVER ({by}ORDER BY {total}) <= {limit}"
        return self.shown(exprs, lambda items: f"SELECT {items} {body}{qualify}")

    # -- from ----------------------------------------------------------------------------------

    def source(self, depth: int) -> tuple[str, list[Col]]:
        """A FROM clause and the columns that it brings."""
        text, scope, plain = self.relation(depth)
        for _ in range(self.pick([0, 0, 1, 1, 1, 2])):
            other, right, also_plain = self.relation(depth - 1)
            if plain is not None and also_plain is not None and self.chance(0.15):
                kind = self.pick(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
                text = f"{text} {kind} {other} USING (n)"
                scope = [Col("n", "INT")] + [c for c in scope + right if not c.text.endswith(".n")]
                return text, scope
            plain = None
            text, scope = self.join(text, scope, other, right)
        return text, scope

    def join(
        self, text: str, scope: list[Col], other: str, right: list[Col]
    ) -> tuple[str, list[Col]]:
        kind = self.pick(JOINS)
        if kind == "CROSS JOIN":
            return f"{text} CROSS JOIN {other}", scope + right
        pairs = [(a, b) for a in scope for b in right if a.kind == b.kind and a.kind != ROUNDED]
        if not pairs:
            return f"{text} CROSS JOIN {other}", scope + right
        conditions = []
        for a, b in self.some(pairs, 1, 2):
            sign = self.pick(["=", "=", "=", "=", "<=>"])
            left = f"{a.text} + 1" if a.kind == "INT" and self.chance(0.1) else a.text
            conditions.append(f"{left} {sign} {b.text}")
        if self.chance(0.25):
            a, b = self.pick(pairs)
            conditions.append(f"{a.text} {self.pick(['<', '<=', '<>'])} {b.text}")
        if kind in ("JOIN", "LEFT JOIN") and self.chance(0.1):
            conditions = conditions[-1:]
        if self.chance(0.2):
            conditions.append(self.comparison(scope + right))
        text = f"{text} {kind} {other} ON {' AND '.join(conditions)}"
        return text, scope if "SEMI" in kind or "ANTI" in kind else scope + right

    def relation(self, depth: int) -> tuple[str, list[Col], Table | None]:
        """A relation under a new alias; with its table, if it is one."""
        alias = self.name("r")
        if depth > 0 and self.chance(0.35):
            made = self.query(depth - 1)
            columns = [Col(f"{alias}.{c.text}", c.kind) for c in made.columns]
            if self.chance(0.3):
                name = self.name("q")
                self.ctes.append((name, made))
                return f"{name} AS {alias}", columns, None
            return f"({made.sql}) AS {alias}", columns, None
        if self.ctes and self.chance(0.2):
            name, cte = self.pick(self.ctes)
            return (
                f"{name} AS {alias}",
                [Col(f"{alias}.{c.text}", c.kind) for c in cte.columns],
                None,
            )
        if self.views and self.chance(0.2):
            view = self.pick(sorted(self.views))
            columns = [Col(f"{alias}.{c.text}", c.kind) for c in self.views[view]]
            return f"{view} AS {alias}", columns, None
        table = self.pick(self.tables)
        columns = [Col(f"{alias}.{name}", kind) for name, kind in table.columns]
        return f"{table.name} AS {alias}", columns, table

    # -- expressions ---------------------------------------------------------------------------

    def key(self, column: Col) -> Col:
        """What to group by: a column, or a simple expression of it."""
        if column.kind == "INT" and self.chance(0.2):
            return Col(f"{column.text} + 1", "INT")
        if column.kind == "STR" and self.chance(0.2):
            return Col(f"upper({column.text})", "STR")
        if self.chance(0.1):
            return Col(f"({column.text} IS NULL)", "BOOL")
        return column

    def aggregate(self, scope: list[Col], kind: str | None, final: bool) -> Col:
        """An aggregate call, of type `kind` if one is asked for."""
        usable = [column for column in scope if column.kind != ROUNDED]
        numbers = [column for column in usable if column.kind in NUMBERS]
        where = f" FILTER (WHERE {self.comparison(scope)})" if self.chance(0.15) else ""
        choices: list[Col] = [
            Col(f"count(*){where}", "BIGINT"),
            Col(f"count({self.pick(usable).text}){where}", "BIGINT"),
            Col(f"count(DISTINCT {self.pick(usable).text}){where}", "BIGINT"),
        ]
        for column in self.some(usable, 1, 3):
            choices.append(Col(f"min({column.text}){where}", column.kind))
            choices.append(Col(f"max({column.text}){where}", column.kind))
            if column.kind == "BOOL":
                choices.append(Col(f"bool_and({column.text}){where}", "BOOL"))
                choices.append(Col(f"bool_or({column.text}){where}", "BOOL"))
            if column.kind == "STR":
                text = column.text
                choices.append(Col(f"listagg({text}, ',') WITHIN GROUP (ORDER BY {text})", "STR"))
        for column in self.some(numbers, 1, 2) if numbers else []:
            summed = {"INT": "BIGINT"}.get(column.kind, column.kind)
            choices.append(Col(f"sum({column.text}){where}", summed))
            if column.kind in ("INT", "BIGINT"):
                choices.append(Col(f"sum(DISTINCT {column.text}){where}", "BIGINT"))
            if final:
                choices.append(Col(f"avg({column.text}){where}", ROUNDED))
                if column.kind in ("INT", "DOUBLE"):
                    choices.append(Col(f"stddev({column.text})", ROUNDED))
                    choices.append(Col(f"var_pop({column.text})", ROUNDED))
                    choices.append(Col(f"median({column.text})", ROUNDED))
        fitting = [choice for choice in choices if kind is None or choice.kind == kind]
        if fitting:
            return self.pick(fitting)
        assert kind is not None
        same = [column for column in usable if column.kind == kind]
        inner = self.pick(same).text if same else self.pick(CONSTANTS[kind])
        return Col(f"max({inner})", kind)

    def expr(self, scope: list[Col], kind: str, depth: int, level: int = 0) -> str:
        """An expression of a type."""
        same = [column.text for column in scope if column.kind == kind]
        if depth == 0 or self.chance(0.5):
            return self.pick(same) if same and self.chance(0.9) else self.pick(CONSTANTS[kind])
        if level > 0 and self.chance(0.1) and (found := self.scalar_subquery(scope, kind)):
            return found
        a = self.expr(scope, kind, depth - 1)
        b = self.expr(scope, kind, depth - 1)
        choices = [
            f"coalesce({a}, {b})",
            f"CASE WHEN {self.comparison(scope)} THEN {a} ELSE {b} END",
        ]
        if kind in ("INT", "DEC", "DOUBLE", "BIGINT"):
            choices += [f"({a} + {b})", f"({a} - {b})"]
        if kind == "INT":
            choices.append(f"({a} * 2)")
            if texts := [column.text for column in scope if column.kind == "STR"]:
                choices.append(f"length({self.pick(texts)})")
        if kind == "DOUBLE":
            whole = [column.text for column in scope if column.kind == "INT"]
            choices.append(f"({self.pick(whole) if whole else '3'} / 2)")
        if kind == "STR":
            choices += [f"concat({a}, {b})", f"upper({a})", f"substring({a}, 1, 1)"]
        if kind == "BOOL":
            choices = [self.comparison(scope), f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})"]
        return self.pick(choices)

    def predicate(self, scope: list[Col], depth: int) -> str:
        """A condition of WHERE, maybe with subqueries."""
        parts = [self.condition(scope, depth) for _ in range(self.pick([1, 1, 1, 2]))]
        return f" {self.pick(['AND', 'AND', 'OR'])} ".join(parts)

    def condition(self, scope: list[Col], depth: int) -> str:
        if depth > 0 and self.chance(0.4):
            return self.subquery_condition(scope)
        return self.comparison(scope)

    def comparison(self, scope: list[Col]) -> str:
        column = self.pick([column for column in scope if column.kind != ROUNDED])
        kind, text = column.kind, column.text
        same = [other.text for other in scope if other.kind == kind and other.text != text]
        other = self.pick(same) if same and self.chance(0.4) else self.pick(CONSTANTS[kind])
        choices = [
            f"{text} = {other}",
            f"{text} <> {other}",
            f"{text} < {other}",
            f"{text} >= {other}",
            f"{text} IS NULL",
            f"{text} IS NOT NULL",
            f"{text} <=> {other}",
            f"{text} IN ({other}, {self.pick(CONSTANTS[kind])})",
            f"{text} NOT IN ({self.pick(CONSTANTS[kind])})",
            f"({text} = {other} OR {text} IS NULL)",
        ]
        if kind in NUMBERS:
            choices.append(f"{text} BETWEEN {other} AND {self.pick(CONSTANTS[kind])}")
        if kind == "STR":
            choices.append(f"{text} LIKE 'a%'")
        return self.pick(choices)

    def subquery_condition(self, scope: list[Col]) -> str:
        relation, inner, _ = self.relation(0)
        pairs = [(a, b) for a in inner for b in scope if a.kind == b.kind and a.kind != ROUNDED]
        if not pairs:
            return self.comparison(scope)
        a, b = self.pick(pairs)
        c, d = self.pick(pairs)
        extra = f" AND {self.comparison(inner)}" if self.chance(0.4) else ""
        alone = f" WHERE {self.comparison(inner)}" if self.chance(0.5) else ""
        linked = f" WHERE {c.text} = {d.text}{extra}" if self.chance(0.4) else alone
        sign = self.pick(["<", "<>", ">="])
        equal, other = f"{a.text} = {b.text}", f"{c.text} {sign} {d.text}"
        choices = [
            f"EXISTS (SELECT 1 FROM {relation} WHERE {equal}{extra})",
            f"NOT EXISTS (SELECT 1 FROM {relation} WHERE {equal}{extra})",
            f"EXISTS (SELECT 1 FROM {relation} WHERE {equal} AND {other})",
            f"NOT EXISTS (SELECT 1 FROM {relation} WHERE {other}{extra})",
            f"{b.text} IN (SELECT {a.text} FROM {relation}{linked})",
            f"{b.text} NOT IN (SELECT {a.text} FROM {relation}{linked})",
            f"EXISTS (SELECT 1 FROM {relation}{alone})",
        ]
        if a.kind in NUMBERS or a.kind in ("STR", "DATE"):
            choices += [
                f"{b.text} {sign} (SELECT max({a.text}) FROM {relation}{linked})",
                f"{b.text} = (SELECT min({a.text}) FROM {relation} WHERE {c.text} = {d.text})",
            ]
        condition = self.pick([equal, other])
        choices.append(
            f"(SELECT count(*) FROM {relation} WHERE {condition}{extra})"
            f" {self.pick(['=', '>', '<'])} {self.random.randint(0, 2)}"
        )
        return self.pick(choices)

    def scalar_subquery(self, scope: list[Col], kind: str) -> str | None:
        relation, inner, _ = self.relation(0)
        pairs = [(a, b) for a in inner for b in scope if a.kind == b.kind and a.kind != ROUNDED]
        values = [column for column in inner if column.kind == kind]
        where = ""
        if pairs and self.chance(0.7):
            a, b = self.pick(pairs)
            where = f" WHERE {a.text} {self.pick(['=', '=', '=', '<'])} {b.text}"
        if kind == "BIGINT":
            return f"(SELECT count(*) FROM {relation}{where})"
        if not values:
            return None
        return (
            f"(SELECT {self.pick(['min', 'max'])}({self.pick(values).text}) FROM {relation}{where})"
        )

    # -- choices -------------------------------------------------------------------------------

    def some_types(self) -> list[str]:
        kinds = ["INT", "INT", "STR", "BIGINT", "DEC", "DOUBLE", "BOOL", "DATE"]
        return [self.pick(kinds) for _ in range(self.random.randint(1, 3))]

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, choices: list[T]) -> T:
        return self.random.choice(choices)

    def some(self, choices: list[T], least: int, most: int) -> list[T]:
        return self.random.sample(choices, min(len(choices), self.random.randint(least, most)))

    def shuffled(self, choices: list[T]) -> list[T]:
        return self.random.sample(choices, len(choices))
