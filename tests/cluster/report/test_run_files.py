"""Facts about reading a fetched run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.errors import DeepcdkError
from cluster.report import run_files
from cluster.report.run_files import moment, number, read_run, whole
from tests.cluster.report.recorded_runs import DIGITS, raw, raw_metrics


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a copy of the recorded run that a test may spoil."""
    return Path(shutil.copytree(DIGITS, tmp_path / "run"))


def test_a_run_is_read_as_it_was_written() -> None:
    files = read_run(DIGITS)
    assert files.record == raw()
    assert list(files.metrics) == raw_metrics()
    assert files.skipped_lines == 0
    assert files.confusion is not None and files.confusion["images"] == 359
    assert files.settings is not None and files.settings["settings"]["epochs"] == 20


def test_lines_that_hold_no_event_are_counted_and_left_out(copied: Path) -> None:
    events = len(read_run(copied).metrics)
    with (copied / "metrics.jsonl").open("a") as file:
        file.write('{"event": 3}\n[1]\nnot JSON\n{"event": "epo')
    files = read_run(copied)
    assert (len(files.metrics), files.skipped_lines) == (events, 4)


def test_what_a_run_did_not_write_is_missing_and_no_error(copied: Path) -> None:
    for name in ("metrics.jsonl", "confusion.json", "mistakes.json", "settings.json"):
        (copied / name).unlink()
    files = read_run(copied)
    assert (files.metrics, files.confusion, files.mistakes, files.settings) == ((), None, None, None)


def test_a_directory_without_a_record_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(DeepcdkError, match=r"holds no record\.json") as raised:
        read_run(tmp_path)
    assert "./runs/ID" in raised.value.remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "it is no JSON"), ("[]", "must be an object"), ('{"run_id": "../x"}', "must be a run's id")],
)
def test_a_record_that_is_none_is_refused_with_the_reason(text: str, says: str, copied: Path) -> None:
    (copied / "record.json").write_text(text)
    with pytest.raises(DeepcdkError, match="is not the record of a run") as raised:
        read_run(copied)
    assert says in str(raised.value)


def test_a_record_whose_state_is_of_another_run_is_refused(copied: Path) -> None:
    record = raw()
    record["state"]["run_id"] = "another"
    (copied / "record.json").write_text(json.dumps(record))
    with pytest.raises(DeepcdkError, match="state is of another run"):
        read_run(copied)


def test_a_file_of_endless_size_is_not_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "MOST_BYTES", 100)
    with pytest.raises(DeepcdkError, match="of which 100 bytes at most are read"):
        read_run(copied)


@given(
    value=st.none()
    | st.booleans()
    | st.text()
    | st.lists(st.integers())
    | st.sampled_from([float("nan"), 1e999, 1e300, -(10**17)])
)
def test_what_is_no_number_is_none(value: object) -> None:
    assert (number(value), whole(value), moment(value)) == (None, None, None)


def test_numbers_are_taken_as_they_are() -> None:
    assert (number(1), number(-0.5), whole(3), whole(3.0), moment(0), moment(-1)) == (1, -0.5, 3, None, 0.0, None)
