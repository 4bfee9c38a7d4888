"""The dashboard in a real browser: what it shows, and what it does when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from playwright.sync_api import Page, expect

from viewkeep.engine.epochs import Epochs, Limits
from viewkeep.engine.local import advance

if TYPE_CHECKING:
    from viewkeep import Database
    from viewkeep.engine.epochs import Published
    from viewkeep.serve.server import Server

    CatchUp = Callable[[], Published]
    Open = Callable[..., Page]
    Serve = Callable[..., Server]


def test_shows_the_plan_and_the_views(page: Page, site: Database) -> None:
    for name in [*site.tables(), *site.views()]:
        expect(page.locator(".node", has_text=name).first).to_be_visible()
        expect(page.locator("#read-name option", has_text=name).first).to_be_attached()
    for name in site.views():
        row = page.get_by_role("row", name=name)
        expect(row.first).to_contain_text("ready")
    shared = page.locator(".node", has=page.locator(".badge"))
    assert shared.count() >= 2, "what several views stand on is marked"
    expect(page.locator("#plan-note")).to_contain_text("levels")
    assert page.locator(".zone").count() > 3


def test_a_node_opens_with_its_sql_and_rows(page: Page) -> None:
    page.locator(".node.result", has_text="author_scores").first.click()
    panel = page.get_by_role("complementary")
    expect(panel.get_by_role("heading", name="author_scores", exact=True)).to_be_focused()
    expect(panel).to_contain_text("JOIN stories")
    expect(panel.get_by_role("region", name="Sample rows")).to_contain_text("author1")
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(page.locator(".node:focus")).to_have_count(1)


def test_inner_nodes_show_their_state(page: Page) -> None:
    page.locator(".node.kind-arrangement").first.click()
    rows = page.get_by_role("region", name="Sample rows")
    expect(rows.locator("tbody tr").first).to_be_visible()
    page.locator(".node.kind-join").first.click(force=True)
    expect(rows).to_contain_text("holds no rows")
    page.locator(".node.table", has_text="votes").first.click(force=True)
    expect(rows.locator("thead")).to_contain_text("voter")


def test_filter_shows_the_part_of_one_view(page: Page) -> None:
    everything = page.locator(".node").count()
    page.get_by_label("View", exact=True).fill("totals")
    expect(page.locator(".node")).to_have_count(2)
    page.get_by_label("View", exact=True).fill("")
    expect(page.locator(".node")).to_have_count(everything)
    page.get_by_role("button", name="Plan of popularity").click()
    expect(page.locator(".node.result", has_text="popularity")).to_be_visible()


def test_read_box(page: Page) -> None:
    page.get_by_label("Table or view").select_option("story_scores")
    page.get_by_label("story BIGINT").fill("3")
    page.get_by_role("button", name="Read", exact=True).click()
    out = page.get_by_role("region", name="Rows read")
    expect(out.locator("tbody tr")).to_have_count(1)
    expect(out.locator("tbody tr")).to_contain_text("12")
    page.get_by_label("story BIGINT").fill("none")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(out).to_contain_text("is not a BIGINT")
    page.get_by_label("story BIGINT").fill("99")
    page.keyboard.press("Enter")
    expect(out).to_contain_text("no such row")


def test_read_box_pages_through_a_prefix(page: Page) -> None:
    page.get_by_label("Table or view").select_option("votes")
    out = page.get_by_role("region", name="Rows read")
    expect(out.locator("tbody tr")).to_have_count(25)
    page.get_by_role("button", name="Next page").click()
    expect(out.locator("tbody tr").first).to_contain_text("1")
    page.get_by_label("story BIGINT").fill("4")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(out.locator("tbody tr")).to_have_count(15)
    expect(page.get_by_role("button", name="Next page")).to_be_hidden()


def test_follows_epochs(page: Page, site: Database, catch_up: CatchUp) -> None:
    page.get_by_label("Table or view").select_option("totals")
    out = page.get_by_role("region", name="Rows read")
    expect(out.locator("tbody")).to_contain_text("162")
    expect(out.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Read again at each epoch").check()
    line = page.locator(".tile", has_text="Throughput").locator(".line").first
    line.wait_for(state="attached")
    before = line.get_attribute("d")
    site.put("votes", [{"story": 1, "voter": 1000 + n, "stars": 5} for n in range(50)])
    epoch = catch_up().epoch
    expect(page.locator("#stand-text")).to_contain_text(f"Epoch {epoch}")
    expect(out.locator("tbody tr")).to_contain_text("212")
    expect(page.locator("#epochs-list tbody tr").first).to_contain_text(str(epoch))
    expect(line).not_to_have_attribute("d", before or "")
    node = page.locator(".node.result", has_text="story_scores").first
    expect(node.locator(".rate")).to_contain_text("/s")
    page.get_by_text("Slowest epochs of the last hour").click()
    expect(page.get_by_role("table", name="Slowest epochs").locator("tr").nth(1)).to_contain_text(
        "for"
    )


def test_figures_as_a_table(page: Page) -> None:
    page.get_by_text("Figures of these plots as a table").click()
    table = page.get_by_role("table", name="Figures of the plots")
    expect(table.locator("tbody tr").first).to_be_visible()
    page.get_by_role("button", name="Table", exact=True).click()
    nodes = page.get_by_role("table", name="Nodes of the plan")
    nodes.get_by_role("button", name="front_page").click()
    expect(page.get_by_role("complementary")).to_contain_text("SQL of front_page")


def test_sql_box(page: Page) -> None:
    box = page.get_by_label("Statement", exact=True)
    out = page.get_by_role("region", name="Result of the statement")
    box.fill("SELECT author, score FROM author_scores WHERE author = 'author1'")
    page.get_by_role("button", name="Run").click()
    expect(out.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Explain").click()
    expect(out).to_contain_text("level")
    box.fill("SELECT nothing FROM nowhere")
    page.keyboard.press("Control+Enter")
    expect(out.get_by_role("alert")).to_contain_text("nowhere")
    box.fill("SELECT vote FROM votes")
    page.keyboard.press("Control+Enter")
    expect(out.get_by_role("alert")).to_contain_text("there is no column vote in votes")
    expect(out.get_by_role("alert")).to_contain_text("Did you mean voter?")


def test_what_drops_something_asks_first(page: Page, site: Database) -> None:
    box = page.get_by_label("Statement", exact=True)
    box.fill("SELECT 1 AS one; /* not popularity */ DROP VIEW totals")
    page.get_by_role("button", name="Run").click()
    dialog = page.get_by_role("dialog", name="This cannot be taken back")
    expect(dialog).to_contain_text("DROP VIEW totals")
    expect(dialog).not_to_contain_text("popularity")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()
    expect(page.locator("#sql-note")).to_have_text("nothing was run")
    assert "totals" in site.views()
    page.get_by_role("button", name="Run").click()
    dialog.get_by_role("button", name="Drop").click()
    expect(page.locator("#sql-note")).to_have_text("done")
    assert "totals" not in site.views()


def test_a_dropped_view_is_chosen_no_more(page: Page, site: Database) -> None:
    page.get_by_label("Table or view").select_option("totals")
    page.get_by_label("Read again at each epoch").check()
    page.get_by_label("View", exact=True).fill("totals")
    expect(page.locator(".node")).to_have_count(2)
    box = page.get_by_label("Statement", exact=True)
    box.fill("DROP VIEW totals")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Drop").click()
    expect(page.locator("#read-name option", has_text="totals")).to_have_count(0)
    expect(page.get_by_label("Table or view")).to_have_value("author_scores")
    expect(page.locator("#read-note")).to_contain_text("author_scores: 3 rows")
    expect(page.get_by_label("View", exact=True)).to_have_value("")
    expect(page.locator(".node.result", has_text="author_scores")).to_be_visible()


def test_a_new_view_appears_loads_and_is_ready(page: Page, site: Database) -> None:
    page.get_by_label("Statement", exact=True).fill(
        "CREATE VIEW by_voter AS SELECT voter, COUNT(*) AS votes FROM votes GROUP BY voter"
    )
    page.get_by_role("button", name="Run").click()
    row = page.get_by_role("row", name="by_voter")
    expect(row).to_contain_text("waiting")
    expect(page.locator(".node.result", has_text="by_voter")).to_be_attached()
    expect(page.locator("#notice")).to_contain_text("viewkeep run")
    epochs = Epochs(site.store)
    lease = epochs.acquire()
    advance(site.store, lease.term, Limits(chunk=20))
    expect(row.get_by_role("progressbar", name="Loading by_voter")).to_be_visible()
    while advance(site.store, lease.term, Limits(chunk=20)) is not None:
        pass
    epochs.release(lease)
    expect(row).to_contain_text("ready")
    expect(page.locator("#announce")).to_contain_text("by_voter is loaded")


def test_verify_with_one_click(page: Page) -> None:
    """The one test here that starts Spark, in the process that verifies."""
    page.get_by_role("button", name="Verify totals").click()
    row = page.get_by_role("row", name="totals")
    expect(row).to_contain_text("checking")
    expect(page.get_by_role("button", name="Verify all")).to_be_disabled()
    expect(row).to_contain_text("right at epoch 1", timeout=300_000)
    expect(page.locator("#verify-note")).to_contain_text("1 view verified")


def test_a_verification_can_be_stopped(page: Page) -> None:
    page.get_by_role("button", name="Verify all").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#verify-note")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Verify all")).to_be_enabled()


def test_an_empty_database_says_what_to_do(db: Database, serve: Serve, open_page: Open) -> None:
    page = open_page(serve(db))
    expect(page.get_by_role("heading", name="This database is empty")).to_be_visible()
    page.get_by_role("button", name="Fill in an example").click()
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("heading", name="This database is empty")).to_be_hidden()
    expect(page.locator(".node.result", has_text="scores")).to_be_visible()
    expect(page.locator("#notice")).to_contain_text("No pipeline runs")


def test_a_lost_server_is_said_and_found_again(site: Database, open_page: Open) -> None:
    from viewkeep.serve.server import Server
    from viewkeep.serve.settings import Settings

    with Server(site, Settings(http_port=0, mysql_port=None)) as first:
        port = first.http_port
        page = open_page(first, lost=True)
        page.locator(".node").first.wait_for()
    expect(page.locator("#notice")).to_contain_text("does not answer")
    expect(page.locator("#stand-text")).to_have_text("No connection")
    with Server(site, Settings(http_port=port, mysql_port=None)):
        expect(page.locator("#stand-text")).to_contain_text("Epoch")
        expect(page.locator("#notice")).to_be_hidden()
        page.close()
