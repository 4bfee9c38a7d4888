"""FROM: the relations of a query, the names they give, and the joins between them.

Law: how a query calls its relations does not matter for the plan nodes that it becomes."""
