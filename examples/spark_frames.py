"""Views as Spark DataFrames, and DataFrames written into tables as operations."""

import viewkeep
from viewkeep.spark.datasource import register
from viewkeep.spark.session import session

db = viewkeep.open("frames.vk", durability="relaxed")
db.sql("""
    CREATE TABLE sales (id BIGINT PRIMARY KEY, region STRING, amount BIGINT);
    CREATE VIEW regions AS SELECT region, SUM(amount) AS amount FROM sales GROUP BY region;
""")

spark = session()
register(spark)
made = spark.range(1000).selectExpr(
    "id", "concat('region', cast(id % 4 AS STRING)) AS region", "id AS amount"
)
options = {"url": db.url, "table": "sales"}
made.write.format("viewkeep").options(**options).mode("append").save()

db.pipeline().run_once()
frame = spark.read.format("viewkeep").option("url", db.url).option("table", "regions").load()
frame.orderBy("region").show()

assert frame.selectExpr("sum(amount)").first()[0] == sum(range(1000))
db.close()
