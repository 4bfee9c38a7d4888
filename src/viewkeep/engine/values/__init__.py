"""Ordered tables: the values of groups in pages, what an epoch does to them, and what is read.

Law: the pages of a group, put together, are its values in order.
"""
