"""Queries written for DuckDB, which answers those that no view can be kept by.

Law: DuckDB is asked only what it means as Spark does."""
