"""Queries answered by DuckDB, in processes that can be ended at any moment.

Law: DuckDB reads rows of one epoch or cut and nothing else, and ends at its deadline.
"""
