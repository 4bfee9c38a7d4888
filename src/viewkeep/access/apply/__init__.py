"""Programs: files of CREATE statements, which a database is brought to in one change.

Law: after it the database is as the program says, or as it was; what was as the program says keeps
its state, and no table that has rows is dropped.
"""
