"""A Spark job that reads views as DataFrames: both at one epoch, joined, written as Parquet.

    spark-submit report.py /data/news.vk /data/report

The pipeline and the application go on meanwhile. What the job reads fits together, since both
DataFrames stand at the epoch that the snapshot holds.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, round

import viewkeep


def report(spark: SparkSession, url: str, folder: str) -> None:
    """For each author: stories, votes, and the share of all votes."""
    with viewkeep.open(url, create=False) as db, db.snapshot(seconds=3600) as snapshot:

        def view(name: str) -> DataFrame:
            reader = spark.read.format("viewkeep").option("url", url)
            return reader.option("table", name).option("epoch", snapshot.epoch).load()

        authors, totals = view("author_scores"), view("totals").select(col("votes").alias("all"))
        shares = authors.crossJoin(totals).withColumn("share", round(col("votes") / col("all"), 4))
        shares.drop("all").orderBy("author").write.mode("overwrite").parquet(folder)
        print(f"wrote {folder}: the votes at epoch {snapshot.epoch}")


if __name__ == "__main__":
    spark = SparkSession.builder.appName("report").getOrCreate()
    report(spark, *sys.argv[1:3])
    spark.stop()
