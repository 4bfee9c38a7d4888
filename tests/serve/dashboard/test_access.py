"""The dashboard for everyone: keyboard, names, contrast, themes, narrow screens, large plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Open = Callable[..., Page]

LEAST_CONTRAST = 4.5

# Every text that is shown, with its colour and the colour under it, both as [r, g, b, a].
CONTRASTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest('.unseen, script, option, title, noscript')) continue;
    if (element.disabled) continue;
    const svg = element.closest('svg');
    const style = getComputedStyle(element);
    let under = element;
    let background = null;
    const box = svg && element.closest('.node, .zone');
    if (box) {
      const shape = element.matches('.badge-text') ? '.badge'
        : box.matches('.zone') ? 'rect' : '.box';
      background = rgba(getComputedStyle(box.querySelector(shape)).fill);
    }
    while (!background || background[3] === 0) {
      background = rgba(getComputedStyle(under).backgroundColor);
      under = under.parentElement;
      if (!under) break;
    }
    const [a, b] = [luminance(rgba(svg ? style.fill : style.color)), luminance(background)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([walker.currentNode.data.trim().slice(0, 40), contrast]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(site: Database, server: Server, open_page: Open, scheme: str) -> None:
    page = open_page(server, color_scheme=scheme)
    page.locator(".node.result").first.click()
    page.get_by_role("region", name="Sample rows").locator("td").first.wait_for()
    page.get_by_label("Statement", exact=True).fill("SELECT x FROM y")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").filter(has_text="y").first.wait_for()
    found: list[tuple[str, float]] = page.evaluate(CONTRASTS)
    assert len(found) > 150
    poor = [(text, round(ratio, 2)) for text, ratio in found if ratio < LEAST_CONTRAST]
    assert not poor


def test_dark_and_light(site: Database, server: Server, open_page: Open) -> None:
    page = open_page(server, color_scheme="dark")
    brightness = "parseInt(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])"
    assert page.evaluate(brightness) < 60
    switch = page.get_by_role("button", name="Theme")
    switch.click()
    expect(switch).to_have_accessible_name("Theme: light")
    assert page.evaluate(brightness) > 200
    page.reload()
    expect(switch).to_have_accessible_name("Theme: light")
    switch.click()
    expect(switch).to_have_accessible_name("Theme: dark")
    assert page.evaluate(brightness) < 60


def test_landmarks_and_names(page: Page) -> None:
    for role in ("banner", "main", "navigation", "contentinfo"):
        expect(page.get_by_role(role)).to_have_count(1)
    expect(page.get_by_role("heading", level=1)).to_have_text("viewkeep")
    for name in ("Plan", "Views", "Read", "SQL", "Epochs"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    assert page.locator("[role=status][aria-live=polite]").count() == 1
    unnamed = page.evaluate("""() =>
        [...document.querySelectorAll('button, input, select, textarea')]
        .filter((e) => e.checkVisibility() && !e.labels?.length
            && !(e.getAttribute('aria-label') || e.textContent.trim()))
        .map((e) => e.outerHTML)""")
    assert not unnamed
    plots = page.get_by_role("img")
    names = [plots.nth(at).get_attribute("aria-label") or "" for at in range(plots.count())]
    for wanted in ("Throughput", "Freshness", "Lag", "Memory"):
        assert any(name.startswith(wanted) for name in names)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((e) => e.id)")
    assert len(ids) == len(set(ids))


def test_keyboard_walk(page: Page) -> None:
    """Everything is reached with Tab, the plan with arrows, and the focus is seen."""
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    seen: list[str] = []
    for _ in range(100):
        page.keyboard.press("Tab")
        here: dict[str, Any] = page.evaluate("""() => {
            const e = document.activeElement, style = getComputedStyle(e);
            const ring = e.querySelector('.ring');
            const ringed = ring && getComputedStyle(ring).stroke !== 'none';
            return { id: e.id || e.className.baseVal || e.textContent.trim(),
                seen: style.outlineStyle !== 'none' || ringed };
        }""")
        assert here["seen"], here
        seen.append(here["id"])
        if here["id"] == "epochs-list":
            break
    for wanted in ("plan-filter", "zoom-in", "plan-table-switch", "verify-all", "read-name"):
        assert wanted in seen
    assert sum(name.startswith("node") for name in seen) == 1, "the plan is one tab stop"
    page.locator(".node[tabindex='0']").focus()
    first = page.evaluate("document.activeElement.dataset.id")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.dataset.id")
    assert second != first
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary")).to_be_visible()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.id") == second


def test_narrow_screens_scroll_one_way(site: Database, server: Server, open_page: Open) -> None:
    """A phone begins with the plan's table; the drawing is whole, and two buttons away from it."""
    page = open_page(server, viewport={"width": 360, "height": 740})
    nodes = page.get_by_role("table", name="Nodes of the plan")
    nodes.get_by_role("button", name="front_page").click()
    expect(page.get_by_role("complementary")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="Close the panel").click()
    page.get_by_role("button", name="Table", exact=True).click()
    page.locator(".node").first.wait_for()
    page.get_by_role("button", name="Fit").click()
    assert not page.evaluate(OUTSIDE)
    page.locator(".node").first.click()
    expect(page.get_by_role("complementary")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


# Nodes that stick out of the drawing.
OUTSIDE = """() => {
  const canvas = document.querySelector('.canvas').getBoundingClientRect();
  return [...document.querySelectorAll('.canvas .node')].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.left < canvas.left || box.right > canvas.right
      || box.top < canvas.top || box.bottom > canvas.bottom;
  }).map((node) => node.getAttribute('aria-label'));
}"""

# What is wider than there is room for: it scrolls sideways, or is cut off.
CUT_OFF = """() => [...document.querySelectorAll('body, body *')]
  .filter((e) => !e.closest('svg, .unseen, .skip, select, input, textarea') && e.checkVisibility()
    && getComputedStyle(e).overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1)
  .map((e) => `${e.tagName} ${e.id} ${e.className}: ${e.scrollWidth} in ${e.clientWidth}`)"""


@pytest.mark.parametrize("width", [390, 768, 1200, 1920])
@pytest.mark.parametrize("path", ["/", "/views/front_page", "/docs"])
def test_nothing_is_cut_off(
    site: Database, server: Server, open_page: Open, catch_up: CatchUp, path: str, width: int
) -> None:
    page = open_page(server, viewport={"width": width, "height": 900}, path=path)
    if path == "/docs":
        page.locator(".api details").first.wait_for()
    else:
        page.locator("#read-out td").first.wait_for()
        page.locator("#plan-note", has_text="levels").wait_for()
        site.put("votes", [{"story": 1, "voter": 1000 + n, "stars": 5} for n in range(50)])
        epoch = catch_up().epoch
        expect(page.locator("#stand-text")).to_contain_text(f"Epoch {epoch}")
        out = "#epochs-list td" if path == "/" else "#feed-out td"
        page.locator(out).first.wait_for()
        assert width < 700 or not page.evaluate(OUTSIDE)
    assert not page.evaluate(CUT_OFF)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_large_plans_are_placed_without_overlap(page: Page) -> None:
    """The law of placing.js, on 300 nodes; and fast enough to draw anew."""
    nodes = [node(f"t{n}", "table", 0, None) for n in range(20)]
    edges = []
    for n in range(280):
        level = 1 + n // 70
        zone = f"z{level}.{n % 12}"
        nodes.append(node(f"n{n}", ("aggregate", "join")[n % 2], level, zone))
        before = [f"t{n % 20}"] if level == 1 else [f"n{n - 70}", f"n{n - 69}"]
        edges += [{"from": one, "to": f"n{n}", "moved": True} for one in before]
    graph = {"plan": 1, "nodes": nodes, "edges": edges}
    placed: dict[str, Any] = page.evaluate(
        """async (graph) => {
            const { place } = await import('/web/placing.js');
            const began = performance.now();
            const { nodes, levels } = place(graph);
            return { took: performance.now() - began,
                nodes: nodes.map(({ id, x, y, width, height }) => ({ id, x, y, width, height })),
                zones: levels.flatMap((l) => l.zones.filter((z) => z.boxed)
                    .map(({ x, y, width, height }) => ({ x, y, width, height }))) };
        }""",
        json.loads(json.dumps(graph)),
    )
    assert placed["took"] < 2_000
    for boxes in (placed["nodes"], placed["zones"]):
        for at, one in enumerate(boxes):
            assert not any(overlap(one, other) for other in boxes[at + 1 :])
    where = {box["id"]: box for box in placed["nodes"]}
    for edge in edges:
        assert where[edge["from"]]["x"] < where[edge["to"]]["x"]


def node(id: str, kind: str, level: int, zone: str | None) -> dict[str, Any]:
    return {"id": id, "kind": kind, "level": level, "zone": zone, "columns": []}


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    return all(
        one[at] < other[at] + other[length] and other[at] < one[at] + one[length]
        for at, length in (("x", "width"), ("y", "height"))
    )
