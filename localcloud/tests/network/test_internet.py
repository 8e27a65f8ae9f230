"""The cloud's internet, and the laptop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcloud.network.addressing import API_ADDRESS, LAPTOP_ADDRESS, OUTSIDE_ADDRESS
from localcloud.network.internet import Internet
from localcloud.network.namespaces import ROUTER_SYSCTLS, NetworkNamespace
from testbed import reachable, seen_from

pytestmark = pytest.mark.root


@pytest.fixture
def internet() -> Iterator[Internet]:
    internet = Internet()
    yield internet
    internet.close()


def test_laptop_reaches_the_api_under_its_own_address(internet: Internet) -> None:
    with internet.listen() as listener:
        assert reachable(internet.laptop, API_ADDRESS, 80)
        connection, peer = listener.accept()
        connection.close()
        assert peer[0] == LAPTOP_ADDRESS


def test_laptop_and_outside_host_use_their_own_addresses(internet: Internet) -> None:
    assert seen_from(internet.laptop, internet.namespace, OUTSIDE_ADDRESS) == LAPTOP_ADDRESS
    assert seen_from(internet.namespace, internet.laptop, LAPTOP_ADDRESS) == OUTSIDE_ADDRESS


def test_public_addresses_are_routed_until_removed(internet: Internet) -> None:
    router = NetworkNamespace(ROUTER_SYSCTLS)
    internet.attach(0, router)
    router.ip(["addr add 198.18.1.5/32 dev lo"])
    with router.listen("198.18.1.5", 22):
        internet.route({"198.18.1.5": 0})
        assert reachable(internet.laptop, "198.18.1.5", 22)
        internet.route({})
        assert not reachable(internet.laptop, "198.18.1.5", 22)
    internet.route({"198.18.1.5": 0})
    internet.detach(0)
    internet.route({})
    router.close()
