"""Rows by name: reading and writing tables and views, and running SQL statements over them."""
