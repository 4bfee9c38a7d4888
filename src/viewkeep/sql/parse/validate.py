"""The first pass over a syntax tree: every part of it is one that the later passes read.

Law: after this pass nothing that was written can be passed over silently. Each kind of node has the
parts that the lowering reads; any other part that is there is refused with its text. Kinds that are
not listed are refused where they stand, by the lowering.
"""

from __future__ import annotations

from typing import TypeAlias

from sqlglot import exp

from viewkeep.errors import Unsupported
from viewkeep.sql.parse.hints import is_known
from viewkeep.sql.parse.syntax import text_of

Kind: TypeAlias = type[exp.Expr]

_TWO = "this expression"
_PARTS: dict[Kind, str] = {
    exp.Select: "expressions from_ joins where group having order limit offset distinct with_ "
    "qualify windows",
    exp.Union: "this expression distinct by_name order limit offset with_",
    exp.Intersect: "this expression distinct by_name order limit offset with_",
    exp.Except: "this expression distinct by_name order limit offset with_",
    exp.Exists: "this",
    exp.Subquery: "this alias joins",
    exp.Table: "this alias joins",
    exp.Join: "this side kind method on using",
    exp.TableAlias: "this columns",
    exp.From: "this",
    exp.With: "expressions",
    exp.CTE: "this alias",
    exp.Where: "this",
    exp.Having: "this",
    exp.Qualify: "this",
    exp.Window: "this partition_by order spec alias over",
    exp.WindowSpec: "kind start start_side end end_side",
    exp.IgnoreNulls: "this",
    exp.RespectNulls: "this",
    exp.Group: "expressions all rollup cube grouping_sets",
    exp.GroupingSets: "expressions",
    exp.Rollup: "expressions",
    exp.Cube: "expressions",
    exp.Dot: _TWO,
    exp.Order: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Limit: "expression",
    exp.Offset: "expression",
    exp.Distinct: "expressions",
    exp.Star: "",
    exp.Alias: "this alias",
    exp.Column: "this table",
    exp.Literal: "this is_string",
    exp.Anonymous: "this expressions",
    exp.Filter: _TWO,
    exp.Cast: "this to",
    exp.TryCast: "this to",
    exp.DataType: "this expressions nested",
    exp.Case: "this ifs default",
    exp.If: "this true false",
    exp.In: "this expressions query unnest",
    exp.Between: "this low high",
    exp.Like: "this expression negate",
    exp.ILike: "this expression negate",
    exp.RegexpLike: _TWO,
    exp.Escape: _TWO,
    exp.Is: _TWO,
    exp.Trim: "this expression position",
    exp.Substring: "this start length",
    exp.StrPosition: "this substr position",
    exp.Extract: _TWO,
    exp.Interval: "this unit",
    exp.Div: "this expression typed safe",  # the last two are the dialect's, not the text's
    exp.DPipe: "this expression safe",
    exp.Create: "this kind expression exists properties replace",
    exp.Index: "this table params",
    exp.IndexParameters: "columns include",
    exp.Drop: "this tables kind exists materialized cascade",
    exp.Alter: "this kind actions",
    exp.AlterColumn: "this dtype default drop",
    exp.RenameColumn: "this to",
    exp.Insert: "this expression alternative",
    exp.Values: "expressions alias joins",
    exp.Update: "this expressions where",
    exp.Delete: "this where",
    exp.Describe: "this kind",
    exp.Schema: "this expressions",
    exp.ColumnDef: "this kind constraints exists",
    exp.PrimaryKey: "expressions include",
    exp.PrimaryKeyColumnConstraint: "",
}
_NO_SCHEMA = ("names have no schema in front", None)
_SAMPLE = ("TABLESAMPLE has another value each time it is asked", None)
_PIVOT = ("PIVOT is not taken", "Write the columns with FILTER or CASE")
_ORDERING = "ORDER BY chooses the order of a view's rows"
_INSIDE = "Put it inside the parentheses"
_REASONS: dict[tuple[Kind, str], tuple[str, str | None]] = {
    (exp.Select, "laterals"): ("LATERAL is not taken", None),
    (exp.WindowSpec, "exclude"): ("EXCLUDE is not taken in a frame", None),
    (exp.Select, "cluster"): ("CLUSTER BY is not taken", _ORDERING),
    (exp.Select, "sort"): ("SORT BY is not taken", _ORDERING),
    (exp.Select, "distribute"): ("DISTRIBUTE BY is not taken", None),
    (exp.Select, "locks"): ("FOR UPDATE is not taken", "A read never waits for a write here"),
    (exp.Select, "kind"): ("SELECT AS is not taken", "Name the columns"),
    (exp.Select, "hint"): (
        "hints are not taken, but for AGGREGATE_FIRST and NO_AGGREGATE_FIRST",
        "Leave it out",
    ),
    (exp.Select, "sample"): _SAMPLE,
    (exp.Table, "sample"): _SAMPLE,
    (exp.Subquery, "sample"): _SAMPLE,
    (exp.Select, "pivots"): _PIVOT,
    (exp.Table, "pivots"): _PIVOT,
    (exp.Subquery, "pivots"): _PIVOT,
    (exp.Subquery, "order"): ("ORDER BY after ) is not taken", _INSIDE),
    (exp.Subquery, "limit"): ("LIMIT after ) is not taken", _INSIDE),
    (exp.Table, "db"): _NO_SCHEMA,
    (exp.Column, "db"): _NO_SCHEMA,
    (exp.Table, "version"): ("AS OF in a query is not taken", None),
    (exp.With, "recursive"): ("recursive queries are not taken", None),
    (exp.Distinct, "on"): ("DISTINCT ON is not taken yet", "Use GROUP BY with MIN or MAX"),
    (exp.Star, "except_"): ("* EXCEPT is not taken", "Name the columns"),
    (exp.Star, "replace"): ("* REPLACE is not taken", "Name the columns"),
    (exp.Between, "symmetric"): (
        "BETWEEN SYMMETRIC is not taken",
        "Write BETWEEN least(a, b) AND greatest(a, b)",
    ),
    (exp.Create, "unique"): ("an index is never UNIQUE: only the primary key is", None),
    (exp.IndexParameters, "where"): ("an index has all rows", "Create a view with ORDER BY"),
    (exp.IndexParameters, "using"): ("an index has one form", "Leave USING out"),
    (exp.Drop, "cluster"): ("DROP INDEX takes the name of the index alone", "Leave ON out"),
    (exp.Alter, "exists"): ("ALTER TABLE IF EXISTS is not taken", "Leave IF EXISTS out"),
    (exp.ColumnDef, "position"): ("a column comes after the others", "Leave FIRST or AFTER out"),
    (exp.Drop, "temporary"): ("there are no temporary views", None),
    (exp.Insert, "overwrite"): ("INSERT OVERWRITE is not taken", "DELETE the rows first"),
    (exp.Insert, "conflict"): (
        "INSERT with ON CONFLICT is not taken",
        "INSERT OR REPLACE INTO replaces rows whose key exists",
    ),
    (exp.Insert, "with_"): ("WITH before INSERT is not taken", "Put it before the SELECT"),
    (exp.Describe, "style"): ("DESCRIBE has one form", "Leave EXTENDED or FORMATTED out"),
}


def refuse_rest(tree: exp.Expr) -> None:
    """Refuse a syntax tree that has a part which the lowering would not read."""
    for node in tree.walk():
        read = _PARTS.get(type(node))
        if read is None:
            continue
        for name, value in node.args.items():
            if value and name not in read.split() and not is_known(value):
                raise _refused(node, name, value)
        named = node.this if isinstance(node, exp.TableAlias) else node.args.get("alias")
        if isinstance(named, exp.Expr) and not isinstance(named, exp.Identifier | exp.TableAlias):
            raise Unsupported("this is not a name", fragment=text_of(named))


def _refused(node: exp.Expr, name: str, value: object) -> Unsupported:
    words = name.rstrip("_").replace("_", " ").upper()
    generic = f"{words} is not taken in {type(node).__name__.upper()}"
    reason, hint = _REASONS.get((type(node), name), (generic, None))
    if name == "db" and not node.this:
        reason = "there are no schemas"
    first = value[0] if isinstance(value, list) else value
    shown = text_of(first if isinstance(first, exp.Expr) and name != "db" else node)
    return Unsupported(reason.format(part=words), fragment=shown, hint=hint)
