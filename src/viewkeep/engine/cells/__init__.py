"""DELTA at work: cell operations on their way to a shard, and merging them into what is kept there.

Law: what is kept and what is given out depend on the set of operations of each epoch alone, so on
neither their order nor how often they came.
"""
