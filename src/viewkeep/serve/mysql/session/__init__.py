"""One client's session: its statements one after another, and what is remembered between them.

Law: a session reads its own writes, and every statement is a transaction of its own.
"""
