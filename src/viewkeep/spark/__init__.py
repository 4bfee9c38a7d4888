"""The pipeline on Spark: log source, epoch runner, DataSource and verification.

Thin: it moves blobs between levels and calls `engine`, which knows no Spark. Importing this package
does not import PySpark; its modules do.
"""
