"""A Parquet file loaded in batches; then a view over the rows that are there already."""

import polars as pl

import viewkeep

ROWS = 50_000
pl.DataFrame(
    {
        "id": range(ROWS),
        "city": [f"city{n % 100}" for n in range(ROWS)],
        "celsius": [n % 40 - 5.5 for n in range(ROWS)],
    }
).write_parquet("readings.parquet")

db = viewkeep.open("weather.vk", durability="relaxed")  # a load that can be repeated
db.sql("CREATE TABLE readings (id BIGINT PRIMARY KEY, city STRING, celsius DOUBLE)")
loaded = db.load("readings", "readings.parquet")
print(f"loaded {loaded.rows:,} rows")

db.sql("""
    CREATE VIEW cities AS
        SELECT city, COUNT(*) AS readings, MIN(celsius) AS low, MAX(celsius) AS high,
               AVG(celsius) AS mean
        FROM readings GROUP BY city
""")
db.pipeline().run_once()  # loads the view in chunks, then exits
print(db.scan("cities", limit=5))

assert len(db.scan("cities")) == 100
assert all(verdict.ok for verdict in db.verify())
db.close()
