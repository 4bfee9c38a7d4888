"""HBase: base tables that its ordinary clients write, and views as tables that they read.

Law: HBase is atomic in one row and no further, so nothing here needs more than that.
"""
