"""Rows by name: reading and writing tables and views, and running SQL statements over them.

Law: a read is at one epoch or one cut, which its caller chose. A write is whole or has not
happened.
"""
