"""Queries written for Spark, which verifies views by them.

Law: the text that is made here means in Spark what the view keeps."""
