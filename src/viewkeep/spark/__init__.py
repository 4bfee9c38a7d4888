"""The pipeline on Spark: log source, epoch runner, DataSource and verification.

Law: a task may run any number of times, on any worker, and does no harm when it comes too late.

Thin: it moves blobs between levels and calls `engine`, which knows no Spark. Importing this package
does not import PySpark; its modules do.
"""
