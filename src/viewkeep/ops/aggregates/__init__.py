"""What a group keeps and shows: totals, values in an order, and the outputs made of both.

Law: what a group shows is a function of the multiset of its rows, and its totals change by what is
added and taken away.
"""
