"""The command that gives free pages of a database's files back to the disk: compact."""

from __future__ import annotations

import viewkeep
from viewkeep.cli.app import Json, Url, UrlCommand, app
from viewkeep.cli.output import console, print_json, size_text


@app.command(cls=UrlCommand)
def compact(url: Url, as_json: Json = False) -> None:
    """Make the files of a database as small as what they hold. No process may have it open.

    Example: viewkeep compact news.vk
    """
    from viewkeep.engine.epochs import Epochs
    from viewkeep.engine.housekeeping import housekeep, waits_for_epoch
    from viewkeep.stores import compact_store

    with viewkeep.open(url, create=False) as db:
        epochs = Epochs(db.store)
        lease = epochs.acquire()
        try:
            while housekeep(db.store):
                pass
            waits = waits_for_epoch(db.store)
        finally:
            epochs.release(lease)
    before, after = compact_store(url)
    if as_json:
        print_json({"url": url, "before": before, "after": after, "waits_for_epoch": waits})
        return
    sizes = f"{size_text(before)} to {size_text(after)}"
    console.print(f"Compacted {url}: {sizes}.", highlight=False, soft_wrap=True)
    if waits:
        console.print(
            f"Dropped tables or views still take room: run viewkeep run {url} --once, then compact "
            "again.",
            highlight=False,
            soft_wrap=True,
        )
