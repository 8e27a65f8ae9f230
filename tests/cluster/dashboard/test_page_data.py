"""How the dashboard reads a run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

import pytest

from cluster.dashboard.page_data import MAX_LOG_LINES, RunReader, RunView
from cluster.dashboard.pages import sweeps
from cluster.dashboard.polled_values import Background
from cluster.errors import ConnectionFailedError, DeepcdkError
from cluster.report.page import Section
from tests.cluster.dashboard.fakes import RECORDED, FakeCluster, FakeReaders, live_cluster, make_run, swept_cluster
from tests.waiting import eventually


@pytest.fixture
def cluster() -> FakeCluster:
    return live_cluster()


def reader(cluster: FakeCluster, run_id: str = RECORDED) -> RunReader:
    return RunReader(cast("Any", cluster), run_id)


def test_metrics_and_log_lines_are_sent_once(cluster: FakeCluster) -> None:
    found, lines = reader(cluster), len(cluster.metrics)
    found.read()
    cluster.metrics.append({"event": "step", "epoch": 21, "step": 1, "time": cluster.record["state"]["updated"]})
    cluster.log.append("[0]<stdout>: epoch 2")
    view = found.read()
    assert view.log == ("[supervisor] preparing", "[0]<stdout>: epoch 1", "[0]<stdout>: epoch 2")
    assert [(words[1], words[3]) for words in cluster.followed] == [("0", f"-{MAX_LOG_LINES}"), (str(lines), "2")]
    assert view.progress.startswith("epoch 21/20, step 1/23")


def test_log_has_no_control_characters_and_an_end(cluster: FakeCluster) -> None:
    cluster.log = ["\x1b[31mred\x1b[0m", "10%\r20%", "\x1b]0;title\x07"] + [f"line {n}" for n in range(MAX_LOG_LINES)]
    log = reader(cluster).read().log
    assert len(log) == MAX_LOG_LINES
    assert not [line for line in log if "\x1b" in line]
    cluster.log = cluster.log[:3]
    assert reader(cluster).read().log == ("red", "10%", "20%", "\\x1b]0;title\\x07")


def test_plots_follow_the_record(cluster: FakeCluster) -> None:
    found = reader(cluster)
    assert [section.title for section in found.read().page.sections][:2] == ["", "Curves"]

    def drawn() -> RunView | None:
        view = found.read()
        return view if view.page.sections[1].figures else None

    page = eventually(drawn).page
    assert [figure.name for figure in page.sections[1].figures][:2] == ["loss", "accuracy"]
    assert "unknown" not in [headline.text for headline in page.sections[0].headlines]
    assert not [section for section in page.sections if section.points]  # a live run's record is never complete
    cluster.record["state"]["state"] = "succeeded"
    eventually(lambda: [section for section in found.read().page.sections if section.points])


def test_unknown_run_is_reported(cluster: FakeCluster) -> None:
    with pytest.raises(DeepcdkError, match="there is no run x"):
        reader(cluster, "x").read()


def test_plots_of_a_sweep_are_drawn_again_when_another_run_succeeds() -> None:
    readers, runs = FakeReaders(FakeCluster()), sweeps(swept_cluster().runs_)["lr-search"].runs

    def plots(runs: list[Mapping[str, Any]]) -> Section:
        return eventually(lambda: readers.sweep("lr-search", runs).plots)

    first = plots(runs)
    assert readers.sweep("lr-search", runs).plots is first
    more = [*runs[:9], {**runs[9], "state": "succeeded"}, *runs[10:]]
    eventually(lambda: readers.sweep("lr-search", more).plots is not first)
    assert len(plots(more).figures) == 4


def test_readers_keep_few_runs_in_memory(cluster: FakeCluster) -> None:
    readers = FakeReaders(cluster)
    first = readers.run("run-0")
    assert readers.run("run-0") is first
    for number in range(60):
        readers.run(f"run-{number}")
    assert len(readers._open_runs) == 50
    assert readers.run("run-0") is not first


def test_slow_list_is_read_rarely_and_active_runs_each_time(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = FakeReaders(cluster)
    for _ in range(2):
        assert readers._read_runs() == sorted(cluster.runs_, key=lambda run: run["run_id"])
    assert cluster.asked == []  # the list is fast
    readers._list_s = 5.0
    cluster.runs_[4] = {**cluster.runs_[4], "state": "failed"}  # the live run has ended
    cluster.runs_.append(make_run(70, state="running"))  # another run was started
    assert readers._read_runs() == sorted(cluster.runs_, key=lambda run: run["run_id"])
    assert sorted(cluster.asked) == sorted([RECORDED, make_run(4)["run_id"], make_run(70)["run_id"]])
    del cluster.runs_[0]
    assert len(readers._read_runs()) == len(cluster.runs_) + 1
    monkeypatch.setattr("cluster.dashboard.page_data.LIST_EVERY_S", 0.0)
    assert len(readers._read_runs()) == len(cluster.runs_)


def test_list_follows_an_error(cluster: FakeCluster) -> None:
    readers = FakeReaders(cluster)
    readers._read_runs()
    readers._list_s, cluster.broken = 5.0, "timed out"
    with pytest.raises(ConnectionFailedError):
        readers._read_runs()
    cluster.broken, cluster.asked = "", []
    readers._read_runs()
    assert cluster.asked == []


def test_value_that_could_not_be_computed_is_computed_again() -> None:
    drawing, tried = Background[str](), itertools.count()

    def draw() -> str:
        if next(tried) == 0:
            raise OSError("no memory")
        return "plot"

    assert drawing.last("data", draw) is None
    with pytest.raises(OSError, match="no memory"):
        eventually(lambda: drawing.last("data", draw))
    assert eventually(lambda: drawing.last("data", draw)) == "plot"
