"""Facts about this node's addresses."""

from __future__ import annotations

from agent.hardware.interfaces import own_addresses, read_address


def test_the_kernel_tells_an_interfaces_address() -> None:
    assert read_address("lo") in ("127.0.0.1", "")
    assert read_address("no-such-device") == ""


def test_this_nodes_addresses_are_found() -> None:
    assert own_addresses() >= {read_address("lo")}
