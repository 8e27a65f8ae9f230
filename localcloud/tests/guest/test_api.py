"""The agent's calls to the embedded cloud's API."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from api.conftest import client, cloud, endpoint
from api.templates import Client
from localcloud.api.cloud import REGION
from localcloud.guest.cloudwatch_agent.__main__ import ConfigurationError, check
from localcloud.guest.cloudwatch_agent.api import Api, ApiError, Credentials, Datum
from localcloud.laptop import ACCESS_KEY_ID

__all__ = ["client", "cloud", "endpoint"]  # fixtures


def laptop() -> Credentials:
    return Credentials(access_key=ACCESS_KEY_ID, token="")


@pytest.fixture
def api(endpoint: str) -> Api:
    return Api(endpoint=endpoint, region=REGION, credentials=laptop)


def test_parameter_is_read_and_a_missing_one_is_reported_by_name(api: Api, client: Client) -> None:
    client("ssm").put_parameter(Name="CFN-one-Agent", Type="String", Value='{"agent":{}}')
    assert api.parameter("CFN-one-Agent") == '{"agent":{}}'
    with pytest.raises(ApiError) as caught:
        api.parameter("CFN-two-Agent")
    assert caught.value.code == "ParameterNotFound"


def test_lines_come_back_from_their_stream(api: Api, client: Client) -> None:
    client("logs").create_log_group(logGroupName="one-NodeLogs")
    for _ in range(2):
        api.create_stream("one-NodeLogs", "i-1/boot")
    api.put_events("one-NodeLogs", "i-1/boot", ["one", "zwei — ü"])
    found = client("logs").get_log_events(logGroupName="one-NodeLogs", logStreamName="i-1/boot")["events"]
    assert [event["message"] for event in found] == ["one", "zwei — ü"]


def test_missing_log_group_is_an_error(api: Api) -> None:
    with pytest.raises(ApiError) as caught:
        api.create_stream("gone", "i-1/boot")
    assert caught.value.code == "ResourceNotFoundException"


def test_values_are_found_under_their_dimensions(api: Api, client: Client) -> None:
    datum = Datum(name="cpu_usage_active", dimensions={"Role": "worker"}, values=[10.0, 30.0], unit="Percent")
    api.put_metrics("deepcdk/one", [datum])
    now = datetime.datetime.now(datetime.UTC)
    found: Any = client("cloudwatch").get_metric_statistics(
        Namespace="deepcdk/one",
        MetricName="cpu_usage_active",
        Dimensions=[{"Name": "Role", "Value": "worker"}],
        StartTime=now - datetime.timedelta(minutes=5),
        EndTime=now + datetime.timedelta(minutes=5),
        Period=600,
        Statistics=["Average", "Maximum"],
    )["Datapoints"]
    assert [(point["Average"], point["Maximum"]) for point in found] == [(20.0, 30.0)]


def test_unreachable_api_is_an_error_without_a_wait() -> None:
    with pytest.raises(ApiError) as caught:
        Api(endpoint="http://127.0.0.1:9", region=REGION, credentials=laptop).parameter("one")
    assert caught.value.code == "Unreachable"


def test_unsupported_configuration_is_rejected_by_name() -> None:
    check({"agent": {}, "metrics": {"metrics_collected": {"cpu": {}, "nvidia_gpu": {}}}})
    for document, name in (
        ({"traces": {}}, "traces"),
        ({"metrics": {"metrics_collected": {"statsd": {}}}}, "metrics_collected.statsd"),
        ({"logs": {"logs_collected": {"journald": {}}}}, "logs_collected.journald"),
    ):
        with pytest.raises(ConfigurationError, match=name):
            check(document)
