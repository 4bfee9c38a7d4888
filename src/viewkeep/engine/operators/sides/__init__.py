"""The arrangements that a reader joins, in each lane.

Law: what a side shows are its rows at the epoch before; the changes of the epoch are added to them
by the operator, so an epoch that runs again sees the same.
"""
