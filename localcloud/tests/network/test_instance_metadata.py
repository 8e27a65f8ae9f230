"""Answers of the instance metadata service."""

from __future__ import annotations

import dataclasses
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from localcloud.network.instance_metadata import MetadataServer, Tokens, answer
from localcloud.snapshot import Instance
from testbed import WORKER, FakeCloud

ROLE = dataclasses.replace(
    WORKER,
    role_name="node",
    profile_arn="arn:aws:iam::123456789012:instance-profile/node",
    public_key="ssh-ed25519 AAAA me",
    user_data=b"#!/bin/sh\n",
)


def ask(instance: Instance, path: str) -> str | None:
    credentials = FakeCloud().role_credentials
    found = answer(instance, path, credentials)
    return None if found is None else found.decode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("meta-data/instance-id", WORKER.id),
        ("meta-data/local-hostname", "ip-10-0-1-10.ec2.internal"),
        ("meta-data/placement/region", "us-east-1"),
        ("meta-data/mac", "02:42:0a:00:01:0a"),
        ("meta-data/public-keys/", "0=key"),
        ("meta-data/public-keys/0/openssh-key", "ssh-ed25519 AAAA me"),
        ("meta-data/iam/security-credentials/", "node"),
        ("meta-data/placement/", "availability-zone\nregion"),
        ("meta-data/network/interfaces/macs/02:42:0a:00:01:0a/subnet-id", "subnet-private"),
        ("dynamic/instance-identity/", "document\nsignature"),
        ("user-data", "#!/bin/sh\n"),
    ],
)
def test_instance_reads_its_own_metadata(path: str, value: str) -> None:
    assert ask(ROLE, path) == value


@pytest.mark.parametrize(
    "path", ["meta-data/spot/instance-action", "meta-data/nothing", "nothing", "meta-data/public-ipv4", ""]
)
def test_unknown_paths_do_not_exist(path: str) -> None:
    assert ask(ROLE, path) is None


def test_interrupted_spot_instance_reads_termination_time() -> None:
    spot = dataclasses.replace(WORKER, spot=True)
    assert ask(spot, "meta-data/instance-life-cycle") == "spot"
    assert ask(spot, "meta-data/spot/instance-action") is None
    noticed = dataclasses.replace(spot, ends_at="2026-01-02T03:04:05Z")
    assert json.loads(str(ask(noticed, "meta-data/spot/instance-action"))) == {
        "action": "terminate",
        "time": "2026-01-02T03:04:05Z",
    }
    assert ask(noticed, "meta-data/spot/termination-time") == "2026-01-02T03:04:05Z"


def test_instance_reads_its_target_lifecycle_state() -> None:
    path = "meta-data/autoscaling/target-lifecycle-state"
    assert ask(WORKER, path) is None
    assert ask(dataclasses.replace(WORKER, target_state="Terminated"), path) == "Terminated"


def test_credentials_are_those_of_the_role() -> None:
    found = json.loads(str(ask(ROLE, "meta-data/iam/security-credentials/node")))
    assert found["Code"] == "Success"
    assert found["AccessKeyId"] == f"KEY-node-{ROLE.id}"
    assert ask(ROLE, "meta-data/iam/security-credentials/other") is None
    assert ask(WORKER, "meta-data/iam/security-credentials/") is None


def test_identity_document_names_account_and_region() -> None:
    document = json.loads(str(ask(ROLE, "dynamic/instance-identity/document")))
    assert (document["accountId"], document["region"]) == ("123456789012", "us-east-1")


def test_token_is_valid_for_its_host_and_lifetime() -> None:
    now = 100.0
    tokens = Tokens(clock=lambda: now)
    token = tokens.issue("10.0.0.1", 60)
    assert tokens.valid("10.0.0.1", token)
    assert not tokens.valid("10.0.0.2", token)
    now = 161.0
    assert not tokens.valid("10.0.0.1", token)


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    listener = socket.create_server(("127.0.0.1", 0))
    hosts = {"127.0.0.1": ROLE}
    credentials = FakeCloud().role_credentials
    server = MetadataServer(listener, find=hosts.get, credentials=credentials)
    yield server
    server.close()


def request(server: MetadataServer, method: str, path: str, **headers: Any) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.socket.getsockname()[1], timeout=60)
    renamed = {f"X-aws-ec2-metadata-{key.replace('_', '-')}": value for key, value in headers.items()}
    connection.request(method, path, headers=renamed)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_no_metadata_is_returned_without_a_token(server: MetadataServer) -> None:
    assert request(server, "GET", "/latest/meta-data/instance-id") == (401, "")
    assert request(server, "GET", "/latest/meta-data/instance-id", token="guessed") == (401, "")


def test_token_gives_access_to_metadata(server: MetadataServer) -> None:
    status, token = request(server, "PUT", "/latest/api/token", token_ttl_seconds="60")
    assert status == 200
    assert request(server, "GET", "/latest/meta-data/instance-id", token=token) == (200, ROLE.id)
    assert request(server, "GET", "/2021-07-15/meta-data/instance-id", token=token) == (200, ROLE.id)
    assert request(server, "GET", "/latest/meta-data/spot/instance-action", token=token)[0] == 404


@pytest.mark.parametrize("ttl", ["", "0", "21601", "soon"])
def test_token_with_invalid_lifetime_is_rejected(server: MetadataServer, ttl: str) -> None:
    assert request(server, "PUT", "/latest/api/token", token_ttl_seconds=ttl)[0] == 400


def test_older_instances_answer_without_a_token(server: MetadataServer) -> None:
    server.find = lambda _: dataclasses.replace(ROLE, metadata_tokens_required=False)
    assert request(server, "GET", "/latest/meta-data/instance-id") == (200, ROLE.id)


def test_unknown_addresses_get_no_metadata(server: MetadataServer) -> None:
    server.find = lambda _: None
    assert request(server, "GET", "/latest/meta-data/instance-id")[0] == 404
