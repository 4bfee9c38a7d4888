"""The operators as functions: frames of rows with weights in, and out.

Law: they are pure. No store, no clock, no Spark; the same rows give the same rows, in whatever
order or batches they come.
"""
