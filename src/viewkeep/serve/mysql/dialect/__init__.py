"""MySQL's statements in viewkeep's SQL.

Law: a statement that both read differently is rewritten or refused, never passed on as it is."""
