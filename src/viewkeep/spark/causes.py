"""The cause of a failure on Spark, as one of our errors.

Law: whatever fails comes out as a PipelineError, or one below it, with the first line of its cause.
"""

from __future__ import annotations

import re

from viewkeep import errors
from viewkeep.errors import PipelineError, ViewkeepError


def as_error(failure: BaseException) -> PipelineError:
    """The failure as one of ours, with its cause's first line.

    What a task or the planner process raised arrives as the text of a Java exception; the last line
    that names an error is the cause, and one of ours goes before others.
    """
    if isinstance(failure, PipelineError):
        return failure
    named = re.findall(r"^(?:\w+\.)*(\w+): (.+)$", str(failure), re.MULTILINE)
    for name, text in reversed(named):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, PipelineError):
            return kind(text)
        if isinstance(kind, type) and issubclass(kind, ViewkeepError):
            return PipelineError(f"an epoch failed: {name}: {text}")
    for name, text in reversed(named):
        if name.endswith(("Error", "Exception")):
            return PipelineError(f"an epoch failed: {name}: {text}")
    first = str(failure).strip().splitlines() or [type(failure).__name__]
    return PipelineError(f"an epoch failed: {first[0]}")
