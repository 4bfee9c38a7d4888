"""A scoreboard: points come in, the ranking is a short scan of an index view."""

import viewkeep

db = viewkeep.open("scoreboard.vk")
db.sql("""
    CREATE TABLE rounds (player STRING, round INT, points INT, PRIMARY KEY (player, round));
    CREATE VIEW players AS
        SELECT player, SUM(points) AS points, COUNT(*) AS rounds, MAX(points) AS best
        FROM rounds GROUP BY player;
    CREATE VIEW ranking AS SELECT points, player FROM players ORDER BY points DESC, player;
""")

with db.pipeline() as pipeline:
    db.put("rounds", [{"player": p, "round": 1, "points": n} for n, p in enumerate("abcdef")])
    pipeline.wait()
    print(db.scan("ranking", limit=3))

    db.put("rounds", {"player": "a", "round": 2, "points": 40})  # a takes the lead
    db.put("rounds", {"player": "f", "round": 1, "points": 1})  # a correction
    db.delete("rounds", ("e", 1))  # withdrawn
    pipeline.wait()
    print(db.scan("ranking", limit=3))

assert db.scan("ranking", limit=2).tuples() == [(40, "a"), (3, "d")]
assert db.get("players", "e") is None
db.close()
