"""Facts about the log of calls: one line a call, with its error and its answer's shape, and none of its values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from cluster.aws.call_log import VARIABLE, field_paths
from cluster.aws.client import Aws


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Name a file in the variable."""
    path = tmp_path / "calls.jsonl"
    monkeypatch.setenv(VARIABLE, str(path))
    return path


def lines(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def test_a_call_is_a_line_with_the_shape_of_its_answer(log: Path, aws: Aws) -> None:
    made = aws.client("ec2").create_vpc(CidrBlock="10.9.0.0/16")
    (line,) = lines(log)
    assert (line["service"], line["operation"], line["error"], line["retries"]) == ("ec2", "CreateVpc", None, 0)
    assert {"Vpc.CidrBlock", "Vpc.VpcId"} <= set(line["fields"])
    assert line["seconds"] >= 0
    assert made["Vpc"]["VpcId"] not in log.read_text(encoding="utf-8")
    assert not [field for field in line["fields"] if field.startswith("ResponseMetadata")]


def test_a_refusal_is_logged_with_code_and_message(log: Path, aws: Aws) -> None:
    with pytest.raises(ClientError):
        aws.client("ec2").describe_instances(InstanceIds=["i-00000000000000000"])
    (line,) = lines(log)
    assert line["error"]["code"] == "InvalidInstanceID.NotFound"
    assert "i-00000000000000000" in line["error"]["message"]
    assert line["fields"] == []


def test_a_call_without_an_answer_is_logged_by_the_name_of_its_error(
    log: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = aws.client("sqs", impatient=True)

    def unreachable(*_: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")

    monkeypatch.setattr(client._endpoint, "make_request", unreachable)  # type: ignore[attr-defined]
    with pytest.raises(EndpointConnectionError):
        client.list_queues()
    (line,) = lines(log)
    assert (line["operation"], line["error"]["code"]) == ("ListQueues", "EndpointConnectionError")


def test_without_the_variable_nothing_is_written(tmp_path: Path, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    aws.client("ec2").describe_vpcs()
    assert list(tmp_path.iterdir()) == []


def test_fields_of_lists_are_named_once_for_all_their_entries() -> None:
    answer = {"Groups": [{"Name": "a", "Tags": [{"Key": "x"}]}, {"Name": "b"}], "Next": None}
    assert set(field_paths({"TemplateBody": {"Resources": {}}, "Stages": []})) == {"TemplateBody"}
    assert set(field_paths(answer)) == {"Groups[].Name", "Groups[].Tags[].Key", "Next"}
