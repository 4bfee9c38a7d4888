"""viewkeep: SQL views over key-value tables, kept fresh by a Spark pipeline.

    import viewkeep

    db = viewkeep.open("news.vk")
    db.sql("CREATE TABLE votes (id BIGINT PRIMARY KEY, story BIGINT)")
    db.sql("CREATE VIEW scores AS SELECT story, COUNT(*) AS votes FROM votes GROUP BY story")
    db.put("votes", {"id": 1, "story": 7})
    with db.pipeline() as pipeline:
        pipeline.wait()
    db.get("scores", 7)  # {'story': 7, 'votes': 1}

Names are imported when they are first used, so a Spark worker that needs `viewkeep.engine` alone
starts without the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from viewkeep import errors
    from viewkeep.access.feeds.feed import Event, Feed
    from viewkeep.access.feeds.turns import Change
    from viewkeep.access.load import Loaded
    from viewkeep.access.reads import At, Snapshot
    from viewkeep.access.results import Result
    from viewkeep.access.sessions import Session
    from viewkeep.access.slices import ANY
    from viewkeep.database import Database, make, open, restore
    from viewkeep.errors import ViewkeepError
    from viewkeep.spark.pipeline import Pipeline
    from viewkeep.spark.verify import Verdict
    from viewkeep.status import Status

__version__ = "0.1.0"

_HOMES = {
    "ANY": "viewkeep.access.slices",
    "At": "viewkeep.access.reads",
    "Change": "viewkeep.access.feeds.turns",
    "Database": "viewkeep.database",
    "Event": "viewkeep.access.feeds.feed",
    "Feed": "viewkeep.access.feeds.feed",
    "Loaded": "viewkeep.access.load",
    "Pipeline": "viewkeep.spark.pipeline",
    "Result": "viewkeep.access.results",
    "Session": "viewkeep.access.sessions",
    "Snapshot": "viewkeep.access.reads",
    "Status": "viewkeep.status",
    "Verdict": "viewkeep.spark.verify",
    "ViewkeepError": "viewkeep.errors",
    "make": "viewkeep.database",
    "open": "viewkeep.database",
    "restore": "viewkeep.database",
}

__all__ = [
    "ANY",
    "At",
    "Change",
    "Database",
    "Event",
    "Feed",
    "Loaded",
    "Pipeline",
    "Result",
    "Session",
    "Snapshot",
    "Status",
    "Verdict",
    "ViewkeepError",
    "errors",
    "make",
    "open",
    "restore",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("viewkeep.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
