"""Reachability in the real networks of the deployed cluster, probed with TCP connections from every side."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import PATIENCE_S, eventually

OUTSIDE = "198.18.255.10"
"""The embedded internet's own host."""
LISTENER = """
import socket, sys
server = socket.create_server(("", int(sys.argv[1])))
print("listening", flush=True)
while True:
    connection, (address, _) = server.accept()
    print(address, flush=True)
    connection.close()
"""
OPEN, CLOSED = "open", "closed"


def probe(cloud: EmbeddedCloud, place: list[str], address: str, port: int) -> str:
    """Try one TCP connection from a place. A refused connection counts as open, because the packet arrived."""
    script = f"exec 3<>/dev/tcp/{address}/{port}"
    command = ("timeout", "2", "bash", "-c", script)
    if place[0] == "exec":
        done = cloud.on(place[1], *command, check=False)
    else:
        done = cloud.localcloud(*place, "--", *command, check=False)
    return OPEN if done.returncode == 0 or "refused" in done.stderr else CLOSED


@contextlib.contextmanager
def listening(cloud: EmbeddedCloud, place: list[str], port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a TCP listener at a place; it prints the address of each client."""
    python = "/opt/deepcdk/bin/python3" if place[0] == "exec" else "python3"
    command = demo.localcloud(place[0], "--name", cloud.name, *place[1:], "--", python, "-c", LISTENER, str(port))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=demo.environment(), cwd=demo.ROOT)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "listening\n"
        yield process
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def master(cluster: EmbeddedCloud) -> dict[str, str]:
    (found,) = cluster.instances("master")
    return {"id": found["InstanceId"], "private": found["PrivateIpAddress"], "public": found["PublicIpAddress"]}


@pytest.fixture(scope="module")
def workers(cluster: EmbeddedCloud) -> list[dict[str, str]]:
    found = cluster.instances("worker")
    assert all("PublicIpAddress" not in instance for instance in found)
    return [{"id": instance["InstanceId"], "private": instance["PrivateIpAddress"]} for instance in found[:2]]


def test_laptop_reaches_ssh_of_the_master_and_no_other_port(cluster: EmbeddedCloud, master: dict[str, str]) -> None:
    with listening(cluster, ["exec", master["id"]], 8080):
        reached = {port: probe(cluster, ["run"], master["public"], port) for port in (22, 111, 2049, 8080)}
    assert reached == {22: OPEN, 111: CLOSED, 2049: CLOSED, 8080: CLOSED}


def test_stranger_on_the_internet_reaches_nothing(cluster: EmbeddedCloud, master: dict[str, str]) -> None:
    assert {port: probe(cluster, ["outside"], master["public"], port) for port in (22, 8080)} == {
        22: CLOSED,
        8080: CLOSED,
    }


def test_worker_is_reached_only_through_the_master(
    cluster: EmbeddedCloud, master: dict[str, str], workers: list[dict[str, str]]
) -> None:
    address = workers[0]["private"]
    assert probe(cluster, ["run"], address, 22) == CLOSED
    assert probe(cluster, ["outside"], address, 22) == CLOSED
    assert probe(cluster, ["exec", master["id"]], address, 22) == OPEN


def test_master_reaches_no_port_of_a_worker_but_ssh(
    cluster: EmbeddedCloud, master: dict[str, str], workers: list[dict[str, str]]
) -> None:
    with listening(cluster, ["exec", workers[0]["id"]], 8080):
        assert probe(cluster, ["exec", master["id"]], workers[0]["private"], 8080) == CLOSED


def test_workers_reach_each_other_on_every_port(cluster: EmbeddedCloud, workers: list[dict[str, str]]) -> None:
    one, other = workers
    with listening(cluster, ["exec", one["id"]], 9999):
        assert probe(cluster, ["exec", other["id"]], one["private"], 9999) == OPEN
        assert probe(cluster, ["exec", other["id"]], one["private"], 7) == OPEN


def test_worker_reaches_no_port_of_the_master(
    cluster: EmbeddedCloud, master: dict[str, str], workers: list[dict[str, str]]
) -> None:
    with listening(cluster, ["exec", master["id"]], 8081):
        reached = {
            port: probe(cluster, ["exec", workers[0]["id"]], master["private"], port) for port in (22, 8081, 65535)
        }
    assert reached == dict.fromkeys(reached, CLOSED)


def test_worker_uses_address_of_nat_gateway(cluster: EmbeddedCloud, workers: list[dict[str, str]]) -> None:
    (gateway,) = cluster.aws("ec2", "describe-nat-gateways")["NatGateways"]
    public = gateway["NatGatewayAddresses"][0]["PublicIp"]
    with listening(cluster, ["outside"], 7777) as listener:
        assert probe(cluster, ["exec", workers[0]["id"]], OUTSIDE, 7777) == OPEN
        assert listener.stdout is not None
        assert listener.stdout.readline().strip() == public


def test_worker_reaches_internet_only_through_nat_gateway(
    cluster: EmbeddedCloud, workers: list[dict[str, str]]
) -> None:
    (table,) = [
        table
        for table in cluster.aws("ec2", "describe-route-tables")["RouteTables"]
        if any("NatGatewayId" in route for route in table["Routes"])
    ]
    (gateway,) = [route["NatGatewayId"] for route in table["Routes"] if "NatGatewayId" in route]
    route = ("--route-table-id", table["RouteTableId"], "--destination-cidr-block", "0.0.0.0/0")
    cluster.laptop("aws", "ec2", "delete-route", *route)
    try:
        with listening(cluster, ["outside"], 7778):
            gone = "the worker goes out no more without its route"
            eventually(lambda: probe(cluster, ["exec", workers[0]["id"]], OUTSIDE, 7778) != OPEN, 10, gone)
    finally:
        cluster.laptop("aws", "ec2", "create-route", *route, "--nat-gateway-id", gateway)


def test_laptop_reaches_nothing_of_the_machine(cluster: EmbeddedCloud) -> None:
    routes = cluster.laptop("ip", "-o", "route").stdout
    assert "default via 100.64.0.1" in routes
    done = cluster.laptop("timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/198.18.200.1/443", check=False)
    assert done.returncode != 0
