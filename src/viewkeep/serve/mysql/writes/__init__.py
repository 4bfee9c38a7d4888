"""INSERT, UPDATE and DELETE as MySQL means them: conversions, numbers given out, conflicts.

Law: a value is kept or refused; none is cut or rounded in silence.
"""
