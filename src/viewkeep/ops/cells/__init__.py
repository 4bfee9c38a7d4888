"""The algebra of timestamped cells: what DELTA keeps of each row, and how operations merge into it.

Law: a state is a join of the states of single operations. `joined` is commutative, associative and
idempotent, so the same set of operations gives the same state, byte for byte, whatever their order,
their number and how they were split into batches.
"""
