"""GROUP BY: keys, grouping sets and time buckets, and the aggregates of a group.

Law: the rows of a group alone decide what is said of it."""
