"""Aggregate: one row per group of totals and outputs, and ordered tables of values.

Law: state(new) = state(old) + gain. A group exists while it has rows; the group of an Aggregate
without keys always. A retraction carries the row that was read.
"""
