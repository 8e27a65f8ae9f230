"""`fab dashboard` in a browser on the laptop, with a real run that is live, stopped, resumed, and has a report."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from cluster import demo
from tests.cluster.dashboard.test_browser import FLAGS
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.browser


@pytest.fixture
def page(cluster: EmbeddedCloud, tmp_path: Path) -> Iterator[Page]:
    """Return the dashboard's first page, in a browser in the laptop's network."""
    chromium = tmp_path / "chromium"
    enter = f"nsenter --net={cluster.described['laptop_namespace']}"
    chromium.write_text(f'#!/bin/sh\nexec {enter} -- /usr/bin/chromium "$@"\n')
    chromium.chmod(0o755)
    command = demo.localcloud("run", "--name", cluster.name, "--", "fab", "dashboard", "--no-browser")
    with (
        subprocess.Popen(
            command, cwd=demo.ROOT, env=demo.environment(), stdout=subprocess.PIPE, text=True
        ) as dashboard,
        sync_playwright() as playwright,
    ):
        assert dashboard.stdout
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            found = browser.new_page()
            found.set_default_timeout(1000 * PATIENCE_S)
            expect.set_options(timeout=1000 * PATIENCE_S)
            found.goto(dashboard.stdout.readline().split()[0])
            yield found
        finally:
            browser.close()
            dashboard.send_signal(signal.SIGINT)
            rest = dashboard.stdout.read()
    assert "the dashboard has ended" in rest
    assert dashboard.returncode == 0


def test_run_is_watched_stopped_and_resumed(cluster: EmbeddedCloud, page: Page) -> None:
    expect(page.locator(".nodes tbody tr")).to_have_count(3)
    expect(page.locator(".nodes")).to_contain_text("worker2")
    begun = cluster.fab(
        "train", "--nodes", "2", "--recipe", "digits", "--epochs", "5000", "--detach", "--json", "--yes"
    )
    run_id = str(json.loads(begun.stdout)["run_id"])
    link = page.get_by_role("link", name=run_id)
    expect(page.locator(f"#run-{run_id}")).to_contain_text("running")
    link.first.click()
    expect(page.locator("#curves figure svg").first).to_be_visible()
    expect(page.locator(".log")).to_contain_text("epoch")
    expect(page.locator(".progress")).to_contain_text("/5000")
    before = page.locator(".progress").inner_text()
    expect(page.locator(".progress")).not_to_have_text(before)

    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Stop the run").click()
    expect(page.get_by_role("dialog")).to_contain_text(f"run {run_id}: stopped")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("main > p .state")).to_have_text("stopped")

    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("button", name="Resume the run").click()
    expect(page.get_by_role("dialog")).to_contain_text("continues on the cluster")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("main > p .state")).to_have_text("running")
    cluster.fab("stop", "--run", run_id)
    stopped = time.monotonic()
    expect(page.locator("main > p .state")).to_have_text("stopped")
    assert time.monotonic() - stopped < 60

    with page.expect_popup() as opened:
        page.get_by_role("link", name="Report").click()
    expect(opened.value.locator("h1")).to_have_text(run_id)


def test_sweep_is_stopped_and_resumed_on_its_page(cluster: EmbeddedCloud, page: Page) -> None:
    grid = ("--recipe", "digits", "--epochs", "5000", "--grid", "learning-rate=0.1,0.01")
    cluster.fab("sweep", *grid, "--name", "two-rates", "--yes")
    page.goto(urljoin(page.url, "/sweeps/two-rates"))
    state = page.locator("main > p .state")
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Stop …").click()
    page.get_by_role("button", name="Stop the sweep").click()
    expect(page.get_by_role("dialog")).to_contain_text("sweep two-rates: 2 runs stopped")
    page.get_by_role("button", name="Close").click()
    expect(state).to_have_text("stopped")

    page.get_by_role("button", name="Resume …").click()
    page.get_by_role("button", name="Resume the sweep").click()
    expect(page.get_by_role("dialog")).to_contain_text("sweep two-rates: 2 runs, 2 at a time")
    page.get_by_role("button", name="Resume the sweep").click()
    expect(page.get_by_role("dialog")).to_contain_text("continue without the laptop")
    page.get_by_role("button", name="Close").click()
    expect(state).to_have_text("running")
    cluster.fab("stop", "--sweep", "two-rates", "--force")
