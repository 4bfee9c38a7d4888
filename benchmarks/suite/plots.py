"""A run as SVG plots: bars where systems are compared, lines where something grows.

Needs matplotlib (`pip install 'viewkeep[bench]'`). The same figures give the same file.
"""

from __future__ import annotations

from pathlib import Path

from suite.contract import OURS, higher_is_better
from suite.results import Run
from suite.runner import Entry, shorten


def plots(run: Run, folder: Path) -> dict[str, list[str]]:
    """Write `bench-*.svg`; the names of the files by workload."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "viewkeep"
    found: dict[str, list[str]] = {}
    for workload in dict.fromkeys(entry["workload"] for entry in run["entries"]):
        entries = [one for one in run["entries"] if one["workload"] == workload and one["figures"]]
        for kind, draw, groups in (
            ("systems", _bars, _compared(entries)),
            ("growth", _lines, _growing(entries)),
        ):
            if groups:
                name = f"bench-{workload}-{kind}.svg"
                _draw(folder / name, draw, groups)
                found.setdefault(workload, []).append(name)
    return found


Groups = dict[str, list[Entry]]


def _compared(entries: list[Entry]) -> Groups:
    """Experiments with the rate of several systems, by title."""
    found: Groups = {}
    for entry in entries:
        if "operations/s" in entry["figures"]:
            found.setdefault(entry["title"], []).append(entry)
    return {title: group for title, group in found.items() if len(group) > 1}


def _growing(entries: list[Entry]) -> Groups:
    """Our experiments along an axis, by name, where there are several places on it."""
    found: Groups = {}
    for entry in entries:
        if entry["axis"] and entry["system"] == OURS:
            found.setdefault(entry["experiment"], []).append(entry)
    return {name: group for name, group in found.items() if len(group) > 1}


def _draw(path: Path, draw, groups: Groups) -> None:  # type: ignore[no-untyped-def]
    from matplotlib import pyplot

    height = sum(0.9 + 0.3 * len(group) for group in groups.values()) if draw is _bars else 0.0
    size = (7.2, height or 2.6 * len(groups))
    figure, axes = pyplot.subplots(len(groups), 1, figsize=size, squeeze=False)
    for place, (title, group) in zip(axes[:, 0], groups.items(), strict=True):
        place.set_title(title, fontsize=10)
        draw(place, group)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _bars(axes, group: list[Entry]) -> None:  # type: ignore[no-untyped-def]
    ordered = sorted(group, key=lambda entry: entry["figures"]["operations/s"]["median"])
    figures = [entry["figures"]["operations/s"] for entry in ordered]
    medians = [figure["median"] for figure in figures]
    spread = [
        [figure["median"] - figure["least"] for figure in figures],
        [figure["most"] - figure["median"] for figure in figures],
    ]
    colors = ["C0" if entry["system"] == OURS else "C7" for entry in ordered]
    names = [entry["system"] for entry in ordered]
    axes.barh(names, medians, xerr=spread, color=colors, ecolor="black", capsize=2)
    for place, figure in enumerate(figures):
        axes.text(figure["most"], place, f"  {shorten(figure['median'])}", va="center", fontsize=8)
    axes.margins(x=0.15)
    axes.set_xlabel("operations/s, median and spread", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(_number)


def _lines(axes, group: list[Entry]) -> None:  # type: ignore[no-untyped-def]
    """The first figure of the family: the one that its workload puts first."""
    ordered = sorted(group, key=lambda entry: entry["axis"][1])
    name = next(iter(ordered[0]["figures"]))
    shared = [entry for entry in ordered if name in entry["figures"]]
    places = [entry["axis"][1] for entry in shared]
    values = {
        key: [entry["figures"][name][key] for entry in shared]
        for key in ("least", "median", "most")
    }
    axes.fill_between(places, values["least"], values["most"], alpha=0.2)
    axes.plot(places, values["median"], marker="o")
    axes.set_ylim(bottom=0)
    if max(places) >= 10 * max(1.0, min(places)):
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_number)
    axes.yaxis.set_major_formatter(_number)
    better = "more" if higher_is_better(name) else "less"
    axes.set_xlabel(ordered[0]["axis"][0], fontsize=8)
    axes.set_ylabel(f"{name}\n({better} is better)", fontsize=8)
    axes.tick_params(labelsize=8)


def _number(value: float, place: int | None = None) -> str:
    """A label of an axis, in full."""
    return f"{value:,.10g}"
