"""Reading a fetched run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cluster.errors import DeepcdkError
from cluster.report import run_files
from cluster.report.run_files import documents, moment, number, read_run, whole
from tests.cluster.report.recorded_runs import DIGITS, raw, raw_metrics


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a copy of the recorded run."""
    return Path(shutil.copytree(DIGITS, tmp_path / "run"))


def test_run_is_read_as_written() -> None:
    files = read_run(DIGITS)
    assert (files.record, list(files.metrics), files.skipped_lines) == (raw(), raw_metrics(), 0)
    assert files.confusion is not None and files.confusion["images"] == 359
    assert files.settings is not None and files.settings["settings"]["epochs"] == 20


def test_lines_without_an_event_are_counted_and_missing_files_are_none(copied: Path) -> None:
    (copied / "metrics.jsonl").write_text('{"event": "end"}\n{"event": 3}\n[1]\nnot JSON\n{"event": "epo')
    (copied / "confusion.json").unlink()
    (copied / "settings.json").write_text("[]")
    files = read_run(copied)
    assert (files.metrics, files.skipped_lines) == (({"event": "end"},), 4)
    assert (files.confusion, files.settings) == (None, None)
    (copied / "metrics.jsonl").unlink()
    assert read_run(copied).metrics == ()


def test_directory_without_a_record_is_rejected_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(DeepcdkError, match=r"has no record\.json") as raised:
        read_run(tmp_path)
    assert "./runs/ID" in raised.value.remedy


def test_fetched_run_with_the_record_of_another_is_rejected(copied: Path) -> None:
    fetched = copied.rename(copied.with_name("20261120-121314-digits-ab12"))
    with pytest.raises(DeepcdkError, match=f"is not a valid record: it is about run {raw()['run_id']}, but") as raised:
        read_run(fetched)
    assert raised.value.remedy == f"rename the directory to {raw()['run_id']}"
    (fetched / "record.json").write_text("")
    with pytest.raises(DeepcdkError, match="invalid JSON") as raised:
        read_run(fetched)
    assert raised.value.remedy == "fetch the run again: `fab fetch --run 20261120-121314-digits-ab12`"


OTHER = json.dumps({**raw(), "state": {**raw()["state"], "run_id": "another"}})


@pytest.mark.parametrize(
    ("text", "says"),
    [("{", "invalid JSON"), ('{"run_id": "../x"}', "must be a run's id"), (OTHER, "state belongs to another run")],
)
def test_invalid_record_is_rejected_with_the_reason(text: str, says: str, copied: Path) -> None:
    (copied / "record.json").write_text(text)
    with pytest.raises(DeepcdkError, match="is not a valid record") as raised:
        read_run(copied)
    assert says in str(raised.value)


def test_huge_file_is_not_read(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "MAX_BYTES", 100)
    with pytest.raises(DeepcdkError, match="at most 100 bytes are read"):
        read_run(copied)


def test_only_finite_numbers_of_a_usual_size_are_numbers() -> None:
    assert (number(1), number(-0.5), whole(3), whole(3.0), moment(0), moment(-1)) == (1, -0.5, 3, None, 0.0, None)
    for value in (None, True, "1", [1], float("nan"), 1e999, 1e300, -(10**17)):
        assert (number(value), whole(value), moment(value)) == (None, None, None)
    assert (documents([{}, 1, {"a": 1}]), documents({"a": 1})) == ([{}, {"a": 1}], [])
