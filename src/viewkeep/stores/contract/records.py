"""Reading stored records: fields that a newer version of viewkeep has added are left out.

Processes of two versions may have a database open at the same time, while one takes the other's
place. Law: a new field may be left out by whoever reads the record, and is lost when an older
process writes it again. What that would make wrong needs a new format of the database instead, or a
name of its own (docs/design/formats.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

Record = TypeVar("Record")


def record_from(kind: type[Record], stored: Mapping[str, Any], **parsed: Any) -> Record:
    """The record of a dataclass; `parsed` are fields that are not as they are stored."""
    known = {field.name for field in fields(cast("Any", kind))}
    return kind(**{**{name: stored[name] for name in stored if name in known}, **parsed})
