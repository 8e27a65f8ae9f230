"""The dashboard in headless Chromium, with a fake cluster: its display and its actions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cluster.dashboard.server import Server
from tests.cluster.dashboard.fakes import RECORDED, FakeCluster, live_cluster, make_run, serving, swept_cluster
from tests.cluster.report.recorded_runs import MARKUP

pytestmark = pytest.mark.browser

AXE: Final = Path(__file__).resolve().parents[3] / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP, PHONE = (1280, 800), (390, 844)
PATIENCE_MS: Final = 60_000
"""Long enough that only a fault exceeds it, never a busy machine."""
FLAGS: Final = (
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SWEEP: Final = "/sweeps/lr-search"
PATHS: Final = ("/", "/runs", f"/runs/{RECORDED}", "/runs/no-such-run", "/sweeps", SWEEP)
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def cluster() -> FakeCluster:
    return live_cluster()


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[Server]:
    with serving(cluster) as found:
        yield found


@pytest.fixture
def open_page(browser: Browser, server: Server) -> Iterator[Open]:
    """Return a function that signs in and opens a page. The test fails if a page reports an error."""
    errors: list[str] = []
    with contextlib.ExitStack() as contexts:

        def open_page(path: str, size: tuple[int, int] = DESKTOP, **options: Any) -> Page:
            viewport: Any = {"width": size[0], "height": size[1]}
            page = contexts.enter_context(browser.new_context(viewport=viewport, **options)).new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.on("pageerror", lambda error: errors.append(str(error)))
            page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
            page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
            page.goto(server.address)
            page.goto(f"http://127.0.0.1:{server.server_port}{path}")
            return page

        expect.set_options(timeout=PATIENCE_MS)
        yield open_page
    unexpected = [error for error in errors if "net::ERR_INTERNET" not in error and "403" not in error]
    assert unexpected == []


def shown(page: Page) -> Page:
    """Wait until the page has its content."""
    expect(page.locator("main")).not_to_contain_text("Reading the")
    if RECORDED in page.url or SWEEP in page.url:
        expect(page.locator("figure svg").first).to_be_visible()
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_pages_fit_and_axe_finds_nothing_serious(
    open_page: Open, cluster: FakeCluster, size: tuple[int, int], scheme: str
) -> None:
    axe, cluster.runs_ = AXE.read_text(), swept_cluster().runs_
    backgrounds = set()
    for path in PATHS:
        page = shown(open_page(path, size, color_scheme=scheme))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.evaluate(axe)
        if path == f"/runs/{RECORDED}":
            page.get_by_role("button", name="Stop").click()  # the page with its dialog
        found = page.evaluate("axe.run()")
        serious = [
            (each["id"], [node["html"] for node in each["nodes"]][:3])
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], path
        assert found["passes"]
    assert backgrounds == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 21, 28)"}


def test_changes_appear_by_themselves_and_keep_focus_and_open_details(open_page: Open, cluster: FakeCluster) -> None:
    page = shown(open_page(f"/runs/{RECORDED}"))
    summary = page.locator("summary", has_text="By epoch")
    summary.focus()
    page.keyboard.press("Enter")
    cluster.log.append("[0]<stdout>: a new line")
    cluster.record["state"] |= {"state": "failed", "reason": "rank 1 exited"}
    expect(page.locator(".log")).to_contain_text("a new line")
    expect(page.locator(".reason")).to_have_text("rank 1 exited")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    assert page.evaluate("document.activeElement.textContent").startswith("By epoch")
    assert page.locator("details[open]", has_text="By epoch").count() == 1


def test_log_follows_its_end_unless_the_reader_is_elsewhere(open_page: Open, cluster: FakeCluster) -> None:
    cluster.log = [f"line {number}" for number in range(200)]
    page = shown(open_page(f"/runs/{RECORDED}"))
    log = page.locator(".log")
    at_end = "(log) => log.scrollHeight - log.scrollTop - log.clientHeight < 8"
    expect(log).to_contain_text("line 199")
    assert log.evaluate(at_end)
    cluster.log.append("line 200")
    expect(log).to_contain_text("line 200")
    assert log.evaluate(at_end)
    log.evaluate("(log) => { log.scrollTop = 10; }")
    cluster.log.append("line 201")
    expect(log).to_contain_text("line 201")
    assert log.evaluate("(log) => log.scrollTop") == 10


def test_runs_are_sorted_filtered_and_opened_with_the_keyboard(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_ = [make_run(number) for number in range(6, 120)] + cluster.runs_
    page = shown(open_page("/runs"))

    def press_until(name: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent.trim()") == name:
                break
        style = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert (page.locator(":focus").inner_text(), style) == (name, "solid")

    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    press_until("Cost")
    page.keyboard.press("Enter")
    header = page.locator("th", has_text="Cost")
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(page.locator("tbody tr").first).to_contain_text("$1.19")
    assert page.locator(":focus").inner_text() == "Cost"
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    page.locator("#q").focus()
    page.keyboard.type("bob shapes")
    expect(page.locator("tbody tr")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No run matches")
    for _ in "bob shapes":
        page.keyboard.press("Backspace")
    page.keyboard.type("digits-0005")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert page.locator(":focus").get_attribute("id") == "q"
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.locator("#q").input_value() == "digits-0005"


def test_more_runs_are_shown_at_a_click(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_ = [make_run(number) for number in range(1000)]
    page = shown(open_page("/runs"))
    expect(page.locator("tbody tr")).to_have_count(50)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("tbody tr")).to_have_count(100)
    page.locator("label", has_text="live").click()
    expect(page.locator("main")).to_contain_text("No run matches")


def test_colleagues_run_is_stopped_after_two_answers_with_the_name(open_page: Open, cluster: FakeCluster) -> None:
    cluster.record["state"]["started_by"] = {"user": "bob", "host": "desk", "laptop": "other"}
    question = f"stop run {RECORDED}, which bob@desk (arn:aws:iam::1:user/bob) started."
    cluster.answers += [{"question": question}, {"done": f"run {RECORDED}: stopped"}]
    page = shown(open_page(f"/runs/{RECORDED}"))
    button = page.get_by_role("button", name="Stop …")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("which bob@desk started")
    assert page.locator(":focus").inner_text() == "Cancel"
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    assert page.locator(":focus").inner_text() == "Stop …"
    assert cluster.acted == []
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text(question)
    assert cluster.acted == [("stop", "runs", RECORDED, False)]
    page.get_by_role("button", name="Stop the run").click()
    expect(dialog).to_contain_text(f"run {RECORDED}: stopped")
    assert cluster.acted[1:] == [("stop", "runs", RECORDED, True)]
    page.keyboard.press("Enter")
    expect(dialog).to_be_hidden()


def test_failed_action_is_explained(open_page: Open, cluster: FakeCluster) -> None:
    cluster.record["state"]["state"] = "failed"
    cluster.answers.append({"error": "the run has secrets: TOKEN\n  do: give --secret TOKEN"})
    page = shown(open_page(f"/runs/{RECORDED}"))
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("button", name="Resume the run").click()
    expect(page.get_by_role("dialog")).to_contain_text("give --secret TOKEN")
    assert cluster.acted == [("resume", "runs", RECORDED, False)]
    page.get_by_role("button", name="Close").click()


def test_broken_connection_is_shown_with_the_age_of_the_data_until_it_is_back(
    open_page: Open, cluster: FakeCluster
) -> None:
    cluster.runs_ += swept_cluster().runs_[6:]
    for path, text in (("/", RECORDED), ("/runs", RECORDED), (f"/runs/{RECORDED}", RECORDED), (SWEEP, "depth=2")):
        page = shown(open_page(path))
        expect(page.locator("#live")).to_have_text("Live")
        cluster.broken = "the connection to the master broke: timed out"
        expect(page.locator("#live")).to_contain_text("Reconnecting, data is")
        expect(page.get_by_role("status").first).to_contain_text("The connection to the cluster broke")
        expect(page.locator("main")).to_contain_text(text)  # the last values remain
        cluster.broken = ""
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator("#note")).to_be_hidden()


def test_page_without_initial_connection_shows_reason(open_page: Open, cluster: FakeCluster) -> None:
    cluster.broken = "no answer within 10 s"
    page = open_page("/runs")
    expect(page.get_by_role("alert")).to_contain_text("no answer within 10 s")
    cluster.broken = ""
    expect(page.locator("tbody tr")).to_have_count(6)


def test_restarted_dashboard_is_detected(open_page: Open, server: Server) -> None:
    page = shown(open_page("/runs"))
    page.context.set_offline(True)
    expect(page.locator("#live")).to_contain_text("No answer, data is")
    expect(page.locator("#note")).to_contain_text("SSH forwarding")
    page.context.set_offline(False)
    expect(page.locator("#live")).to_have_text("Live")
    server.dashboard.token = "of another start"
    expect(page.locator("#live")).to_contain_text("Signed out")


def test_hostile_text_is_only_text(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_[0] |= {"reason": MARKUP, "started_by": {"user": MARKUP, "host": "</script>", "laptop": "x"}}
    cluster.runs_[4] |= {"reason": MARKUP}
    cluster.record["state"] |= {
        "reason": MARKUP,
        "started_by": {"user": MARKUP, "host": '" onclick="alert(3)', "laptop": "x"},
    }
    cluster.record["result"] = {MARKUP: MARKUP}
    cluster.log = [
        MARKUP,
        "\x1b]8;;javascript:alert(4)\x07link\x1b]8;;\x07",
        "\x1b[31mred\x1b[0m",
        "</pre><script>alert(5)</script>",
    ]
    for path in ("/", "/runs", f"/runs/{RECORDED}"):
        page = shown(open_page(path))
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("main script, main img, main iframe, [onclick], [onerror]").count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
    expect(page.locator(".log")).to_contain_text("</pre><script>alert(5)</script>")
    expect(page.locator(".log")).to_contain_text("\nred\n")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("dialog")).to_contain_text("<script>alert(1)</script>")
    time.sleep(1.5)  # by now, hostile text has started whatever it can; the fixture detects it


def test_hostile_parameters_of_a_sweep_are_only_text(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_ = swept_cluster(parameters=(MARKUP, 'x" onclick="alert(6)')).runs_
    for run in cluster.runs_:
        if run.get("trial"):
            run["trial"]["parameters"][1][1] += MARKUP
    for path in ("/sweeps", SWEEP, "/runs"):
        page = shown(open_page(path, PHONE))
        expect(page.locator("main")).to_contain_text("<script>alert(1)</script>")
        assert page.locator("main script, main img, main iframe, [onclick], [onerror]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    time.sleep(1.5)  # by now, hostile text has started whatever it can; the fixture detects it


def test_sweep_is_opened_filtered_and_updated_with_the_keyboard(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_ = swept_cluster().runs_
    page = shown(open_page("/sweeps"))
    link = page.locator("main a", has_text="lr-search")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("lr-search")
    rows = page.locator(".runs tbody tr")
    expect(rows).to_have_count(12)
    expect(page.locator("figure svg")).to_have_count(4)
    page.locator("#q").focus()
    page.keyboard.type("depth=2")
    expect(rows).to_have_count(6)
    live = next(run for run in cluster.runs_ if run["state"] == "running" and run.get("trial"))
    live["state"] = "succeeded"
    expect(page.locator(".headlines")).to_contain_text("10 of 12")
    assert page.locator(":focus").get_attribute("id") == "q"


def test_reduced_motion_is_respected(open_page: Open) -> None:
    animation = "getComputedStyle(document.querySelector('.dot')).animationName"
    assert open_page("/runs", reduced_motion="reduce").evaluate(animation) == "none"
    assert open_page("/runs").evaluate(animation) == "pulse"


def test_empty_cluster_shows_first_steps(open_page: Open, cluster: FakeCluster) -> None:
    cluster.runs_ = []
    expect(shown(open_page("/")).locator("main")).to_contain_text("fab train")
    expect(shown(open_page("/runs")).locator("main")).to_contain_text("There is no run yet")
    expect(shown(open_page("/sweeps")).locator("main")).to_contain_text("There is no sweep yet")
    cluster.log = []
    expect(shown(open_page(f"/runs/{RECORDED}")).locator("main")).to_contain_text("The log has no lines yet")
