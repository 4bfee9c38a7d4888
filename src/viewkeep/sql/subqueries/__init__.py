"""Subqueries in expressions, which become joins with the rows of the query around.

Law: the query around keeps exactly its rows."""
