"""SELECT: a whole query to plan nodes, clause by clause.

Law: what SQL computes first is computed first."""
