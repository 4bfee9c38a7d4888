"""Views: the published tables, as those who read them find them.

Law: that of `versioned`. A store that keeps views apart from state (`Capabilities.views_apart`) is
handed their rows by the epoch that made them; in any other, views are state, and are read there.
"""

from __future__ import annotations

from viewkeep.stores.contract.versioned import Versioned


class Views(Versioned):
    """The tables of views, in as many shards as state."""
