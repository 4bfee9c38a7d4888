"""What the databases of a campaign hold: tables, and views of every kind, small enough to check."""

from __future__ import annotations

ACCOUNTS = """CREATE TABLE accounts (
  id BIGINT, owner INT, amount BIGINT, w BIGINT, PRIMARY KEY (id))"""
ITEMS = """CREATE TABLE items (
  a BIGINT, b INT, v BIGINT, s STRING, x DOUBLE, w BIGINT, PRIMARY KEY (a, b))"""
NOTES = "CREATE TABLE notes (id BIGINT, text STRING, w BIGINT, PRIMARY KEY (id))"

VIEWS = {
    "total": "SELECT SUM(amount) AS total, COUNT(*) AS n FROM accounts",
    "rich": "SELECT id, owner, amount FROM accounts WHERE amount > 50",
    "per_owner": "SELECT owner, COUNT(*) AS n, SUM(amount) AS amount, MIN(amount) AS lo, "
    "MAX(amount) AS hi FROM accounts GROUP BY owner",
    "joined": "SELECT i.a, i.b, i.v, c.amount FROM items i JOIN accounts c ON i.a = c.id",
    "left_joined": "SELECT c.id, c.amount, i.b, i.s FROM accounts c LEFT JOIN items i "
    "ON c.id = i.a",
    "full_joined": "SELECT c.id, i.a, i.b FROM accounts c FULL OUTER JOIN items i ON c.id = i.a",
    "letters": "SELECT DISTINCT s FROM items",
    "top": "SELECT id, amount FROM accounts ORDER BY amount DESC, id LIMIT 3",
    "ranked": "SELECT id, owner, ROW_NUMBER() OVER (PARTITION BY owner ORDER BY amount, id) AS r "
    "FROM accounts",
    "running": "SELECT a, b, SUM(v) OVER (PARTITION BY a ORDER BY b) AS sofar FROM items",
    "used": "SELECT id FROM accounts WHERE EXISTS "
    "(SELECT 1 FROM items WHERE items.a = accounts.id)",
    "unused": "SELECT id FROM accounts WHERE NOT EXISTS "
    "(SELECT 1 FROM items WHERE items.a = accounts.id)",
    "all_of_them": "SELECT id AS k, amount AS x FROM accounts UNION ALL SELECT a, v FROM items",
    "by_letter": "SELECT s, COUNT(DISTINCT a) AS accounts, AVG(v) AS mean FROM items GROUP BY s",
    "indexed": "SELECT id, amount, owner FROM accounts ORDER BY owner, amount DESC",
    "above": "SELECT id, amount FROM accounts WHERE amount > (SELECT AVG(amount) FROM accounts)",
    "doubles": "SELECT a, SUM(x) AS total, AVG(x) AS mean, STDDEV(x) AS spread FROM items "
    "GROUP BY a",
    "hashed": "SELECT a, b, md5(s) AS h FROM items",
    "known": "SELECT a, b, v, s FROM items WHERE v IS NOT NULL",
}
# Views of one shape, which share a predicate index.
SHAPES = {
    **{f"of_{k}": f"SELECT id, amount FROM accounts WHERE owner = {k}" for k in range(3)},
    **{f"above_{k}": f"SELECT id, amount FROM accounts WHERE amount > {k}" for k in (20, 50, 80)},
    "middling": "SELECT id, owner FROM accounts WHERE amount BETWEEN 30 AND 60",
    "two_owners": "SELECT id, COUNT(*) AS n FROM accounts WHERE owner IN (0, 2) GROUP BY id",
    "letters_x": "SELECT a, b FROM items WHERE s = 'x'",
    "sums_of_y": "SELECT s, SUM(v) AS v FROM items WHERE s = 'y' GROUP BY s",
    "large_x": "SELECT a, b FROM items WHERE x >= 0.2",
}
VIEWS |= SHAPES
# What CREATE OR REPLACE makes of a view: other columns, other rows, another key.
REPLACEMENTS = {
    "total": "SELECT SUM(v) AS total, MAX(x) AS most FROM items",
    "rich": "SELECT owner, id FROM accounts WHERE amount > 20",
    "per_owner": "SELECT owner, AVG(amount) AS mean FROM accounts WHERE id > 1 GROUP BY owner",
    "letters": "SELECT s, b, COUNT(*) AS n FROM items GROUP BY s, b",
    "top": "SELECT a, b, v FROM items ORDER BY v, a, b LIMIT 2",
    "joined": "SELECT i.s, c.owner, COUNT(*) AS n FROM items i JOIN accounts c ON i.a = c.id "
    "GROUP BY i.s, c.owner",
}
OVER_VIEWS = {
    "sizes": ("per_owner", "SELECT n, COUNT(*) AS times FROM per_owner GROUP BY n"),
    "rich_owners": ("rich", "SELECT owner, SUM(amount) AS amount FROM rich GROUP BY owner"),
    "hashes": ("hashed", "SELECT h, COUNT(*) AS n FROM hashed GROUP BY h"),
    "top_sum": ("top", "SELECT SUM(amount) AS amount, COUNT(*) AS n FROM top"),
}
POISON = "!"  # a text that no epoch can take the md5 of
NOTED = "SELECT text, COUNT(*) AS n, MAX(id) AS newest FROM notes GROUP BY text"
