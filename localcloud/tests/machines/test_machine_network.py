"""The commands that link machines, and their DHCP configuration, as text."""

from __future__ import annotations

from localcloud.machines.machine_network import (
    bridge_commands,
    dhcp_configuration,
    server_commands,
    server_link,
    server_link_commands,
    server_ruleset,
)
from localcloud.network.addressing import mac
from testbed import WORKER, snapshot

SUBNET = snapshot().subnets[1]


def test_only_the_machines_card_has_its_mac_address() -> None:
    own = mac(WORKER.private_ip)
    commands = bridge_commands(WORKER, SUBNET)
    given = [line.split(" address ")[1].split()[0] for line in commands if " address " in line]
    assert len({*given, own}) == 3
    assert f"neigh replace 10.0.1.10 lladdr {own} dev br0 nud permanent" in commands


def test_bridge_has_address_of_gateway_without_answering_for_it() -> None:
    commands = bridge_commands(WORKER, SUBNET)
    assert "addr add 10.0.1.1/24 dev br0" in commands
    assert commands.index("link set br0 arp off") < commands.index("link set br0 up")


def test_dhcp_provides_address_and_vpc_settings() -> None:
    lines = dhcp_configuration(WORKER, SUBNET).splitlines()
    assert "dhcp-host=02:42:0a:00:01:0a,10.0.1.10,ip-10-0-1-10,infinite" in lines
    assert "dhcp-range=10.0.1.0,static,255.255.255.0,infinite" in lines
    assert "dhcp-option=option:router,10.0.1.1" in lines
    assert "dhcp-option=option:dns-server,169.254.169.253" in lines
    assert "dhcp-option=option:domain-name,ec2.internal" in lines
    assert "port=0" in lines, "names are the router's"


def test_addresses_of_file_server_are_translated() -> None:
    assert "tcp dport 2049 dnat to 100.64.255.2" in server_ruleset()
    assert "addr add 100.64.255.1/30 dev tap0" in server_commands()
    name = server_link("fs-0123456789abcdef0")
    assert (len(name) <= 15, name) == (True, "n456789abcdef0")
    assert server_link_commands("fs-0123456789abcdef0", "/proc/1/fd/3")[0].endswith("peer name eth0 netns /proc/1/fd/3")
