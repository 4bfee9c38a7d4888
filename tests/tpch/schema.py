"""The TPC-H tables and queries: data from tpchgen-cli, loaded into viewkeep and DuckDB alike.

The queries are the specification's, with its validation parameters, in Spark's dialect: intervals
and EXTRACT are spelt Spark's way, view 15 is a CTE; nothing else differs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb

from viewkeep.database import Database

QUERIES = {
    path.stem: path.read_text()
    for path in sorted((Path(__file__).parent / "queries").glob("*.sql"))
}
KEYS = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "customer": ("c_custkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
TABLES = {
    "region": "r_regionkey BIGINT, r_name STRING, r_comment STRING",
    "nation": "n_nationkey BIGINT, n_name STRING, n_regionkey BIGINT, n_comment STRING",
    "supplier": "s_suppkey BIGINT, s_name STRING, s_address STRING, s_nationkey BIGINT, "
    "s_phone STRING, s_acctbal DECIMAL(15,2), s_comment STRING",
    "customer": "c_custkey BIGINT, c_name STRING, c_address STRING, c_nationkey BIGINT, "
    "c_phone STRING, c_acctbal DECIMAL(15,2), c_mktsegment STRING, c_comment STRING",
    "part": "p_partkey BIGINT, p_name STRING, p_mfgr STRING, p_brand STRING, p_type STRING, "
    "p_size INT, p_container STRING, p_retailprice DECIMAL(15,2), p_comment STRING",
    "partsupp": "ps_partkey BIGINT, ps_suppkey BIGINT, ps_availqty INT, "
    "ps_supplycost DECIMAL(15,2), ps_comment STRING",
    "orders": "o_orderkey BIGINT, o_custkey BIGINT, o_orderstatus STRING, "
    "o_totalprice DECIMAL(15,2), o_orderdate DATE, o_orderpriority STRING, o_clerk STRING, "
    "o_shippriority INT, o_comment STRING",
    "lineitem": "l_orderkey BIGINT, l_partkey BIGINT, l_suppkey BIGINT, l_linenumber INT, "
    "l_quantity DECIMAL(15,2), l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), "
    "l_tax DECIMAL(15,2), l_returnflag STRING, l_linestatus STRING, l_shipdate DATE, "
    "l_commitdate DATE, l_receiptdate DATE, l_shipinstruct STRING, l_shipmode STRING, "
    "l_comment STRING",
}
# Spark's average of decimals is a decimal; DuckDB's a double, which would decide `<` otherwise
# where a quantity equals a fifth of the average.
EXACT = {
    "q17": ("avg(l_quantity)", "CAST(avg(l_quantity) AS DECIMAL(19,6))"),
    "q22": ("avg(c_acctbal)", "CAST(avg(c_acctbal) AS DECIMAL(19,6))"),
}


def generate(folder: Path, scale: float) -> Path:
    """Make the Parquet files of a scale, unless they are there."""
    target = folder / f"tpch-{scale:g}"
    if not target.is_dir():
        program = Path(sys.executable).parent / "tpchgen-cli"
        subprocess.run(
            [program, "parquet", "--quiet", "-s", f"{scale:g}", "-o", target],
            check=True,
            timeout=600,
        )
    return target


def create_tables(db: Database) -> None:
    for table, columns in TABLES.items():
        db.sql(f"CREATE TABLE {table} ({columns}, PRIMARY KEY ({', '.join(KEYS[table])}))")


def load(db: Database, folder: Path) -> int:
    """Load every table; the number of rows."""
    return sum(db.load(table, folder / f"{table}.parquet", progress=False).rows for table in TABLES)


def create_view(db: Database, name: str) -> None:
    db.sql(f"CREATE VIEW {name} AS {QUERIES[name]}")


def load_duckdb(folder: Path) -> duckdb.DuckDBPyConnection:
    """DuckDB with the same tables."""
    made = duckdb.connect()
    made.execute("SET threads=1")
    for table in TABLES:
        path = folder / f"{table}.parquet"
        made.execute(f"CREATE TABLE {table} AS SELECT * FROM read_parquet('{path}')")
    return made
