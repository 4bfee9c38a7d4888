"""Figures as SVG plots, by matplotlib (`pip install 'viewkeep[bench]'`)."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "viewkeep"  # the same figures give the same file

from matplotlib import pyplot  # noqa: E402


def growth(figures: list[dict[str, float]], path: Path) -> None:
    """Seconds per 1,000 updates over the rows of the tables, with the spread."""
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6))
    rows = [line["rows"] for line in figures]
    seconds = [line["seconds"] for line in figures]
    axes.fill_between(
        rows, [line["least"] for line in figures], [line["most"] for line in figures], alpha=0.2
    )
    axes.plot(rows, seconds, marker="o")
    axes.axhline(1.5 * seconds[0], linestyle="--", linewidth=1, color="gray")
    axes.text(rows[0], 1.53 * seconds[0], "1.5 x the first", color="gray", fontsize=8)
    axes.set(
        xscale="log",
        ylim=(0, max(2 * seconds[0], 1.1 * max(seconds))),
        xlabel="rows in the three tables",
        ylabel="seconds per 1,000 updates",
        title="A three-way join with an aggregate, while the tables grow",
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def partial(figures: dict[str, dict[str, float]], path: Path) -> None:
    """Epochs by the share of keys that are wanted; reads and rows of state by the bound."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9.6, 3.6))
    epochs = {w: f for w, f in figures.items() if w.startswith("epochs, ")}
    shares = [float(what.split()[1].rstrip("%")) for what in epochs]
    for name in ("full", "partial"):
        left.plot(shares, [found[f"{name}, ms"] for found in epochs.values()], "o-", label=name)
    left.set(ylim=0, xlabel="% of keys wanted", ylabel="ms of processor time", title="An epoch")
    left.legend()
    bounds = [found for what, found in figures.items() if what.startswith("bound at")]
    names = [f"{found['share of evictable state']:.0%}" for found in bounds]
    essential = [found["essential bytes"] / 1e6 for found in bounds]
    held = [found["rows of state, bytes"] / 1e6 for found in bounds]
    evictable = [all_ - least for all_, least in zip(held, essential, strict=True)]
    right.bar(names, essential, label="essential", color="C7")
    right.bar(names, evictable, bottom=essential, label="evictable", color="C0")
    for place, found in enumerate(bounds):
        told = (
            f"read p50 {found['read p50, us']:,.0f} us\np99 {found['read p99, us'] / 1e3:,.1f} ms"
        )
        right.text(place, held[place], told, ha="center", va="bottom", fontsize=8)
    right.set(xlabel="bound, of evictable state", ylabel="MB of rows", title="State and reads")
    right.margins(y=0.25)
    right.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
