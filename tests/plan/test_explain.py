"""EXPLAIN, as golden texts."""

from __future__ import annotations

import pytest

from viewkeep.plan.explain import explain

from .test_program import COUNTS, PLAIN, program

TREES = {
    PLAIN: """\
view plain (id, more)
└─ ▤ VIEW by (id)  · level 0 · zone [id]
   state 1: rows under (id), 2 columns
   π PROJECTION add(stars, 1:INT), id
   σ SELECTION gt(stars, 2:INT)
   └─ Δ DELTA votes (key id)  · level 0""",
    COUNTS: """\
view counts (story, n)
  reads state table 1 of the operator below directly
└─ γ COUNT(*) by story  · level 1 · zone [story]
   state 1: groups under (story), 2 columns
   ⇄ re-distributed by [story]
   └─ Δ DELTA votes (key id)  · level 0""",
    "CREATE INDEX i ON votes (user DESC)": """\
view i (user, id)
└─ ▤ INDEX by (user DESC, id)  · level 1 · zone [user]
   state 1: rows under (user DESC, id), 2 columns
   ⇄ re-distributed by [user]
   └─ Δ DELTA votes (key id)  · level 0""",
    "CREATE VIEW h AS SELECT story, max(stars) AS m FROM votes GROUP BY story HAVING m > 1": """\
view h (story, m)
└─ ▤ VIEW by (story)  · level 1 · zone [story]
   state 3: rows under (story), 2 columns
   σ SELECTION gt(max(stars), 1:INT)
   └─ γ MAX(stars) by story  · level 1 · zone [story]
      state 1: groups under (story), 3 columns
      state 2: PRE-AGGREGATION, values of stars under (story, #value), 3 columns
      ⇄ re-distributed by [story]
      └─ Δ DELTA votes (key id)  · level 0""",
    "CREATE VIEW d AS SELECT DISTINCT user FROM votes": """\
view d (user)
  reads state table 1 of the operator below directly
└─ γ DISTINCT by user  · level 1 · zone [user]
   state 1: groups under (user), 2 columns
   ⇄ re-distributed by [user]
   └─ Δ DELTA votes (key id)  · level 0""",
}


@pytest.mark.parametrize("text", TREES)
def test_tree(text: str) -> None:
    made = program(text)
    assert explain(made, list(made.placements)) == TREES[text]


def test_what_is_shared_and_what_is_reused() -> None:
    above = "CREATE VIEW top AS SELECT n, count(*) AS c FROM counts GROUP BY n"
    made = program(COUNTS, above)
    text = explain(made, ["top"], program(COUNTS))
    assert (
        text
        == """\
view top (n, c)
  reads state table 2 of the operator below directly
└─ γ COUNT(*) by count(*)  · level 2 · zone [count(*)]
   state 2: groups under (count(*)), 2 columns
   ⇄ re-distributed by [count(*)]
   └─ γ COUNT(*) by story  · level 1 · zone [story] · used by 2 views · reused
      state 1: groups under (story), 2 columns
      ⇄ re-distributed by [story]
      └─ Δ DELTA votes (key id)  · level 0"""
    )


def test_views_are_set_apart_by_an_empty_line() -> None:
    made = program(PLAIN, COUNTS)
    assert explain(made, ["plain", "counts"]).count("\n\n") == 1
    assert explain(made, []) == ""
