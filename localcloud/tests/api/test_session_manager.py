"""Session Manager's actions, called with boto3."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from api.templates import Client
from localcloud.api.cloud import Cloud
from localcloud.api.session_manager import DOCUMENT
from localcloud.sessions.service import Relay, SessionService

NOBODY = "i-0123456789abcdef0"


@pytest.fixture(scope="module", autouse=True)
def service(cloud: Cloud) -> Iterator[SessionService]:
    """Return the session service of a cloud without hosts."""
    made = SessionService(
        relay=Relay(socket.create_server(("127.0.0.1", 0))), hosts={}, denied=cloud.gate.denied_actions
    )
    cloud.serve_sessions(made)
    yield made
    made.relay.close()


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"Target": NOBODY, "DocumentName": DOCUMENT}, "TargetNotConnected"),
        ({"Target": NOBODY}, "InvalidDocument"),
        ({"Target": NOBODY, "DocumentName": "AWS-StartPortForwardingSession"}, "InvalidDocument"),
        (
            {"Target": NOBODY, "DocumentName": DOCUMENT, "Parameters": {"portNumber": ["ssh"]}},
            "ValidationException",
        ),
        (
            {"Target": NOBODY, "DocumentName": DOCUMENT, "Parameters": {"portNumber": ["22", "23"]}},
            "ValidationException",
        ),
    ],
)
def test_impossible_session_is_rejected_with_aws_code(client: Client, request_: Any, code: str) -> None:
    with pytest.raises(ClientError) as caught:
        client("ssm").start_session(**request_)
    assert code_of(caught) == code


def test_no_instance_is_connected_without_hosts(client: Client) -> None:
    assert client("ssm").describe_instance_information()["InstanceInformationList"] == []
    assert client("ssm").get_connection_status(Target=NOBODY)["Status"] == "notconnected"


def test_unsupported_filter_is_rejected(client: Client) -> None:
    with pytest.raises(ClientError) as caught:
        client("ssm").describe_instance_information(Filters=[{"Key": "PingStatus", "Values": ["Online"]}])
    assert code_of(caught) == "InvalidFilterKey"


def test_session_ends_when_it_is_terminated_and_is_never_resumed(client: Client, service: SessionService) -> None:
    session = service.relay.open()
    with pytest.raises(ClientError) as caught:
        client("ssm").resume_session(SessionId=session.id)
    assert code_of(caught) == "DoesNotExistException"
    client("ssm").terminate_session(SessionId=session.id)
    assert not service.relay.end(session.id)
