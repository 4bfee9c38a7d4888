"""INSERT, UPDATE and DELETE as MySQL means them: conversions, numbers given out, conflicts."""
