"""Ordered tables: the values of groups in pages, what an epoch does to them, and what is read."""
