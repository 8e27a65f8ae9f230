"""What nodes report while data is staged, and the summary at the end."""

from __future__ import annotations

import json

import pytest

from agent.staging import errors, s3_objects, upload_stream
from cluster.master_answers import AnswerError
from cluster.staging.node_reports import REMEDIES, Reports, StagingError

HOSTS = ("deeplearning-worker1", "deeplearning-worker2")


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [("full", "worker_volume_gib"), ("denied", "data_buckets"), ("refused", "login user"), ("", "fix")],
)
def test_each_kind_of_failure_has_a_fix(kind: str, remedy: str) -> None:
    reports = Reports(None)
    reports.feed("deeplearning-worker2", "stdout", json.dumps({"error": "no room", "kind": kind}).encode() + b"\n")
    with pytest.raises(StagingError, match=r"worker2: no room") as caught:
        reports.check()
    assert remedy in caught.value.remedy


def test_each_node_error_has_a_fix_for_its_kind() -> None:
    named = [each for module in (errors, s3_objects, upload_stream) for each in vars(module).values()]
    kinds = {each.kind for each in named if isinstance(each, type) and issubclass(each, errors.DatasetError)}
    assert kinds - {""} == REMEDIES.keys() - {"refused"}, "refused is the kind of a PermissionError"


@pytest.mark.parametrize(
    "line",
    [
        b"Welcome\x1b[2J",
        b"[]",
        b'{"files": 1}',
        b'{"files": "1", "bytes": 1}',
        b'{"error": "no room"}',
        b'{"error": ["no room"], "kind": "full"}',
        b'{"missing": "a"}',
        b'{"done": ["a"]}',
        b'{"done": {"foreign": "a"}}',
        b'{"done": {"digest": 1}}',
    ],
)
def test_invalid_report_is_rejected_with_name_of_master(line: bytes) -> None:
    with pytest.raises(AnswerError, match="a staging command is invalid") as caught:
        Reports(None, "ec2-user@198.18.1.2").feed(HOSTS[0], "stdout", line + b"\n")
    assert (caught.value.where, "\x1b" in str(caught.value)) == ("ec2-user@198.18.1.2", False)


def test_missing_number_in_report_is_named() -> None:
    reports = Reports(None, "ec2-user@198.18.1.2")
    reports.take(HOSTS[0], '{"done": {"files": 1}}')
    with pytest.raises(AnswerError, match="foreign is missing") as caught:
        reports.done[HOSTS[0]]["foreign"]
    assert caught.value.where == "ec2-user@198.18.1.2"
