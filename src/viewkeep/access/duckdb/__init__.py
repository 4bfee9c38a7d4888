"""Queries answered by DuckDB, in processes that can be ended at any moment."""
