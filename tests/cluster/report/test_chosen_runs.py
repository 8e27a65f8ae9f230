"""Naming a run on the command line, and finding it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import DeepcdkError, NoStackError, UsageError
from cluster.report import chosen_runs
from cluster.report.chosen_runs import comparison_name, locate, read_chosen
from cluster.ssh.fetch import Fetched
from tests.cluster.report.recorded_runs import DIGITS, raw

ID = str(raw()["run_id"])


class Cluster:
    """Replace fetching; record the requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bool]] = []
        self.error: DeepcdkError | None = None

    def session_of(self, name: str) -> Any:
        return name

    def fetch(self, session: Any, run_id: str, into: Path, *, archive_only: bool = False) -> Fetched:
        self.asked.append((session, run_id, archive_only))
        if self.error:
            raise self.error
        return Fetched(directory=into / (run_id or ID), files=1, size_bytes=1)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.chdir(tmp_path)
    found = Cluster()
    monkeypatch.setattr(chosen_runs, "fetch_run", found.fetch)
    return found


def keep(state: str = "succeeded") -> Path:
    """Put a fetched run with some state into ./runs."""
    directory = Path(shutil.copytree(DIGITS, Path("runs") / ID))
    record = raw()
    record["state"]["state"] = state
    (directory / "record.json").write_text(json.dumps(record))
    return directory


def test_directory_is_read_without_connecting(cluster: Cluster) -> None:
    assert read_chosen(f"{DIGITS}/", cluster.session_of)[1].record == raw()
    assert cluster.asked == []


def test_successful_run_is_used_as_fetched(cluster: Cluster) -> None:
    kept = keep()
    assert locate(ID, cluster.session_of) == kept
    assert cluster.asked == []


@pytest.mark.parametrize("state", ["running", "failed"])
def test_run_that_may_have_changed_is_fetched_again(state: str, cluster: Cluster) -> None:
    keep(state)
    locate(ID, cluster.session_of)
    assert cluster.asked == [("", ID, False)]


def test_argument_and_flag_choose_source_of_run(cluster: Cluster) -> None:
    assert locate("", cluster.session_of) == Path("runs") / ID
    locate(f"other:{ID}", cluster.session_of)
    keep()
    locate(ID, cluster.session_of, archive_only=True)
    assert cluster.asked == [("", "", False), ("other", ID, False), ("", ID, True)]


def test_run_found_only_locally_is_used_with_a_note(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    kept = keep("failed")
    cluster.error = NoStackError("deepcdk", "us-east-1")
    assert locate(ID, cluster.session_of) == kept
    with pytest.raises(NoStackError):
        locate("one", cluster.session_of)
    said = " ".join(capsys.readouterr().err.split())
    assert said == f"stack deepcdk is not deployed; using the copy in runs/{ID}"


def test_invalid_run_name_is_rejected_immediately(cluster: Cluster) -> None:
    for word in ("../nothing", "./x", "-rf", "a b", ":x y", "UPPER"):
        with pytest.raises(UsageError):
            locate(word, cluster.session_of)
    assert cluster.asked == []


def test_comparison_is_named_after_its_runs() -> None:
    assert comparison_name(["20261123-222751-digits-eb5e", "one"]) == "comparison-eb5e-one"
    assert comparison_name([f"run-{number}" for number in range(9)]) == "comparison-0-1-2-3-4-5-and-3-more"
