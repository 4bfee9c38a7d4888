"""SQL to plans, and statements to values that say what to do.

The folders are the way of a text: `parse` makes a tree of it, `expressions` gives values types,
`relations` reads FROM, `grouping` GROUP BY, `select` puts a query together, `subqueries` makes
joins of the queries inside it, and `statements` is what comes out. `spark_sql` and `duckdb_sql`
write queries for other engines.

Law: what is not understood is refused, with its text and the reason;
nothing here reads a row."""
