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
