"""The rows lane: epochs of few operations, one row at a time by generated functions.

A polars call costs some 50 us however few rows it is for, and an operator makes dozens. So an epoch
of few rows runs here: its rows are plain tuples of physical values (`codec.scalars`), and what a
feed, a filter, a projection or a total does to each is Python source, generated from the plan once
(`viewkeep explain --code` prints it). Law: both lanes write the same bytes.
"""
