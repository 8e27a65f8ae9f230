"""The services of a VPC's router."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from collections.abc import Iterator

import pytest

from localcloud.fd_poller import FdPoller
from localcloud.network.addressing import METADATA_ADDRESS, RESOLVER_ADDRESS, interface
from localcloud.network.namespaces import NetworkNamespace, run
from localcloud.network.router import Router
from network.test_resolver import EFS, question
from testbed import VPC, WORKER, FakeCloud, reachable, snapshot

pytestmark = pytest.mark.root


@contextlib.contextmanager
def make_router(*, link_mbit: int = 0) -> Iterator[Router]:
    poller = FdPoller()
    router = Router(
        vpc_id=VPC,
        index=0,
        fd_poller=poller,
        credentials=FakeCloud().role_credentials,
        outside={},
        link_mbit=link_mbit,
    )
    try:
        yield router
    finally:
        router.close()
        poller.close()


@pytest.fixture
def router() -> Iterator[Router]:
    with make_router() as made:
        yield made


def test_metadata_and_dns_are_answered_before_first_instance(router: Router) -> None:
    assert reachable(router.namespace, METADATA_ADDRESS, 80)

    def ask() -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(60)
            client.sendto(question(EFS), (RESOLVER_ADDRESS, 53))
            return client.recv(512)

    assert router.namespace.enter(ask)[:2] == question(EFS)[:2]


def test_mount_targets_follow_the_snapshot(router: Router) -> None:
    assert not reachable(router.namespace, "10.0.1.200", 2049)
    router.apply(snapshot(WORKER), [])

    def greet() -> bytes:
        with socket.create_connection(("10.0.1.200", 2049), timeout=60) as connection:
            return connection.recv(100)

    assert router.namespace.enter(greet) == b"fs-0123abcd\n"
    assert not reachable(router.namespace, "10.0.1.200", 988)
    now = snapshot(WORKER)
    lustre = dataclasses.replace(now.mount_targets[0], file_system_id="fs-4567", ip="10.0.1.201", service="fsx")
    router.apply(dataclasses.replace(now, mount_targets=(lustre,)), [])
    assert reachable(router.namespace, "10.0.1.201", 988)
    assert not reachable(router.namespace, "10.0.1.201", 2049)
    assert not reachable(router.namespace, "10.0.1.200", 2049)
    empty = snapshot()
    router.apply(type(empty)(vpcs=empty.vpcs), [])
    assert not reachable(router.namespace, "10.0.1.200", 2049)


@pytest.mark.parametrize(("mbit", "bounded"), [(0, False), (100, True)])
def test_router_limits_traffic_to_instance(mbit: int, bounded: bool) -> None:
    namespace = NetworkNamespace()
    try:
        with make_router(link_mbit=mbit) as router:
            router.connect([(WORKER, namespace.path)])
            shown = router.namespace.enter(lambda: run(["tc", "qdisc", "show", "dev", interface(WORKER.id)]))
            assert ("tbf" in shown and "rate 100Mbit" in shown) == bounded
            assert ("lat 666ms" in shown) == bounded, "what 8 MiB wait: senders on two links fill no more"
    finally:
        namespace.close()
