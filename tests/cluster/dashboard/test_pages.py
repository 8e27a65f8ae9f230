"""The table of runs: its order, its filter and its cells."""

from __future__ import annotations

import random
import re
import time

import pytest

from cluster.dashboard.pages import COLUMNS, Choice, live_first, moment, money, share, sweeps
from cluster.dashboard.server import Dashboard
from tests.cluster.dashboard.fakes import FakeCluster, FakeReaders, live_cluster, make_run, swept_cluster
from tests.waiting import eventually

RUNS = live_cluster().runs_


@pytest.mark.parametrize(
    ("sort", "first"),
    [("run", 0), ("-run", -2), ("state", -2), ("-cost", 3), ("accuracy", 0), ("-time", -2), ("owner", -2)],
)
def test_runs_are_sorted_by_a_column(sort: str, first: int) -> None:
    runs = [*RUNS[:4], {**RUNS[4], "updated": RUNS[4]["started"] + 9000}, RUNS[5]]
    found = Choice(sort=sort).apply(runs)
    assert found[0]["run_id"] == runs[first]["run_id"]
    assert len(found) == len(runs)


def test_runs_without_a_value_are_last_in_both_orders() -> None:
    unknown = make_run(9, spent=None)
    for sort in ("cost", "-cost"):
        assert Choice(sort=sort).apply([unknown, *RUNS[:3]])[-1] is unknown


def test_validation_accuracy_is_marked() -> None:
    (column,) = (each for each in COLUMNS if each.key == "accuracy")
    texts = [column.text(make_run(1, epoch={f"{split}_accuracy": 0.5})) for split in ("test", "validation")]
    assert texts == ["50.00%", "50.00% validation"]
    assert column.text(make_run(1, epoch=None)) == "-"


def test_filter_finds_all_words_in_run_owner_state_and_reason() -> None:
    def found(words: str, group: str = "") -> list[str]:
        return [run["run_id"][-4:] for run in Choice(words=words, group=group).apply(RUNS)]

    assert found("BOB succeeded") == ["0001"]
    assert found("shapes differ") == ["0005"]
    assert found("", "live") == ["9f6a"]
    assert found("", "queued") == ["0004"]
    assert found("alice", "ended") == ["0000"]
    assert found("nobody-has-this") == []


def test_runs_of_a_sweep_are_found_by_its_name_and_parameters() -> None:
    trial = {"sweep": "lr-search", "number": 2, "parameters": [["lr", "0.1"]], "repeat": 1, "seed": 1}
    cluster = FakeCluster(runs_=[*RUNS[:2], make_run(8, trial=trial)])
    for words in ("lr-search", "lr=0.1"):
        assert [run["run_id"][-4:] for run in Choice(words=words).apply(cluster.runs_)] == ["0008"]
    page = Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report).page("/runs", {})
    assert page is not None
    assert '<a href="/sweeps/lr-search">lr-search</a>: lr=0.1, repeat 1' in page[0]


def page(cluster: FakeCluster, path: str, dashboard: Dashboard | None = None) -> str:
    """Return a page as HTML."""
    found = (dashboard or Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report)).page(path, {})
    assert found is not None
    return found[0]


def test_sweeps_are_listed_with_the_newest_first_and_their_totals() -> None:
    cluster = swept_cluster()
    trial = {"sweep": "later", "number": 1, "parameters": [], "repeat": 1, "seed": 1}
    cluster.runs_.append(make_run(60, trial=trial))
    cluster.runs_.append(make_run(61, trial={**trial, "sweep": "../x"}))  # not a name that a master accepts
    found = sweeps(cluster.runs_)
    assert [*found] == ["later", "lr-search"]
    swept = found["lr-search"]
    assert (swept.state, swept.parameters) == ("running", ["learning-rate", "depth"])
    assert swept.counts == {"succeeded": 9, "failed": 1, "running": 1, "queued": 1}
    assert swept.usd == pytest.approx(2.75)
    assert swept.best == pytest.approx(0.928)
    text = page(cluster, "/sweeps")
    assert text.index("/sweeps/later") < text.index("/sweeps/lr-search")
    assert ("9 of 12" in text, "by learning-rate, depth" in text, "$2.75" in text) == (True, True, True)


@pytest.mark.parametrize(
    ("states", "state"),
    [
        (["succeeded", "queued", "running"], "running"), (["queued", "failed"], "queued"),
        (["stopped", "failed"], "failed"), (["stopped", "succeeded"], "stopped"), (["succeeded"], "succeeded"),
    ],
)  # fmt: skip
def test_state_of_a_sweep_shows_what_is_left_and_then_the_worst_run(states: list[str], state: str) -> None:
    trials = [{"sweep": "s", "number": number, "parameters": [], "repeat": 1} for number in range(len(states))]
    runs = [make_run(number, state=states[number], trial=trial) for number, trial in enumerate(trials)]
    assert sweeps(runs)["s"].state == state


def test_repeated_run_counts_once_in_its_sweep_and_costs_twice() -> None:
    trial = {"sweep": "s", "number": 1, "parameters": [["lr", "0.1"]], "repeat": 1, "seed": 1}
    runs = [make_run(100, state="failed", trial=trial), make_run(200, trial=trial)]
    found = sweeps(runs)["s"]
    assert found.counts == {"succeeded": 1}
    assert found.usd == pytest.approx(3.0)


def test_page_of_a_sweep_has_the_table_of_the_comparison_and_then_its_plots() -> None:
    cluster = swept_cluster()
    dashboard = Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report)
    text = page(cluster, "/sweeps/lr-search", dashboard)
    for part in ("2 of 2", "1 of 2", "92.30% \N{PLUS-MINUS SIGN} 0.42%", "12 of 12 runs", "the loss is not a number"):
        assert part in text
    plotted = eventually(lambda: found if "<svg" in (found := page(cluster, "/sweeps/lr-search", dashboard)) else None)
    for title in ("Test accuracy by learning-rate", "Time by depth"):
        assert title in plotted
    assert "No run belongs to this sweep" in page(cluster, "/sweeps/other")


@pytest.mark.parametrize(
    ("states", "buttons"),
    [
        (["succeeded", "queued", "running"], ["stop"]), (["failed", "running"], ["stop", "resume"]),
        (["stopped", "succeeded"], ["resume"]), (["succeeded", "succeeded"], []),
    ],
)  # fmt: skip
def test_page_of_a_sweep_offers_what_can_be_done(states: list[str], buttons: list[str]) -> None:
    trials = [{"sweep": "s", "number": number, "parameters": [], "repeat": 1} for number in range(len(states))]
    runs = [make_run(number, state=states[number], trial=trial) for number, trial in enumerate(trials)]
    text = page(FakeCluster(runs_=runs), "/sweeps/s")
    assert re.findall('data-act="/sweeps/s/([a-z]+)"', text) == buttons


def test_table_of_a_large_sweep_is_cut() -> None:
    runs = [
        make_run(number, trial={"sweep": "s", "number": number, "parameters": [["n", f"{number}"]], "repeat": 1})
        for number in range(1000)
    ]
    text = page(FakeCluster(runs_=runs), "/sweeps/s")
    assert "200 of 1,000 combinations" in text
    assert text.count("<tr") == 2 + 200 + 50
    assert len(text) < 100_000


def test_invalid_choices_are_replaced() -> None:
    assert Choice.of({"sort": "-x", "rows": "-5", "group": "y"}) == Choice()
    assert Choice.of({"rows": "\N{ARABIC-INDIC DIGIT THREE}"}) == Choice()
    assert Choice.of({"sort": "cost", "rows": "100", "group": "live", "q": "a"}) == Choice(
        sort="cost", rows=100, group="live", words="a"
    )


def test_click_on_column_sorts_descending_first_and_then_reverses() -> None:
    run, cost = COLUMNS[0], COLUMNS[-1]
    assert [Choice().next_sort(cost), Choice(sort="-cost").next_sort(cost)] == ["-cost", "cost"]
    assert [Choice().next_sort(run), Choice(sort="cost").next_sort(run)] == ["run", "run"]
    assert [Choice(sort=sort).direction(cost) for sort in ("cost", "-cost", "run")] == [
        "ascending",
        "descending",
        "none",
    ]


def test_queued_runs_are_listed_in_order_after_live_runs() -> None:
    waiting = [make_run(n, state="queued", position=n) for n in (2, 1)]
    assert [run.get("position") for run in live_first([*waiting, *RUNS[:4], RUNS[4]])] == [None, 1, 2]


@pytest.mark.parametrize(("usd", "text"), [(0.0, "$0.00"), (0.004, "<$0.01"), (1234.5, "$1,234.50")])
def test_costs_have_cents(usd: float, text: str) -> None:
    assert money(usd) == text


def test_times_have_a_date_unless_they_are_of_today() -> None:
    assert moment(0) == "1970-01-01 00:00"
    assert len(moment(time.time())) == 5


@pytest.mark.parametrize(
    ("cell", "part"),
    [("83% of 8", 0.83), ("5.0 of 16.0 GiB", 0.3125), ("20% of 100 GiB", 0.2), ("-", None), ("1 MB/s", None)],
)
def test_cells_of_load_have_a_share(cell: str, part: float | None) -> None:
    assert share(cell) == part


def test_summary_needs_only_what_the_master_must_send() -> None:
    optional = ("reason", "position", "epoch", "spent", "started_by", "last_lines", "exit_code")
    runs = [{key: value for key, value in run.items() if key not in optional} for run in RUNS]
    cluster = FakeCluster(runs_=runs)
    dashboard = Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report)
    for path in ("/", "/runs"):
        page = dashboard.page(path, {})
        assert page is not None
        assert RUNS[4]["run_id"] in page[0]


def test_page_with_a_thousand_runs_is_small() -> None:
    runs = [make_run(number) for number in range(1000)]
    random.Random(1).shuffle(runs)
    cluster = FakeCluster(runs_=runs)
    dashboard = Dashboard("deepcdk", FakeReaders(cluster), cluster.act, cluster.report)
    page = dashboard.page("/runs", {"sort": "-cost", "q": "digits"})
    assert page is not None
    assert page[0].count("<tr id=") == 50
    assert "50 of 1000 runs" in page[0]
    assert len(page[0]) < 60_000
