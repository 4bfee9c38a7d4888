"""Statements: what each becomes after analysis, and the shortcuts for those of plain shapes.

Law: a statement is a value with all names resolved; running it is the business of `access`."""
