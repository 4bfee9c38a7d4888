"""The dashboard for everyone: keyboard, names, contrast, themes, narrow screens, large plans."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.serve.server import Server

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
    for _ in range(80):
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
    page = open_page(server, viewport={"width": 360, "height": 740})
    page.locator(".node").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator(".node").first.click()
    expect(page.get_by_role("complementary")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


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
