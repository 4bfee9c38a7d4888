"""What a group keeps and shows: totals, values in an order, and the outputs made of both."""
