"""The network of a machine, as text: the link of its card to its instance's network, and its DHCP configuration.

A machine's card is a tap device in the network namespace of its instance. It is bridged to the instance's link to the
router. Pure functions.
"""

from __future__ import annotations

import ipaddress

from localcloud.hosts.host import DOMAIN, hostname
from localcloud.machines.qemu import TAP
from localcloud.network.addressing import RESOLVER_ADDRESS, gateway, mac
from localcloud.snapshot import Instance, Subnet

SERVER_ADDRESS = "100.64.255.2"
"""Internal address of every file server. Its namespace translates the mount targets' addresses to it."""
_SERVER_GATEWAY = "100.64.255.1"
_BRIDGE = "br0"


def _other_mac(private_ip: str, number: int) -> str:
    """Return a MAC address that no instance's card has. `number` is its second byte."""
    return f"02:{number:02x}:{mac(private_ip)[6:]}"


def bridge_commands(instance: Instance, subnet: Subnet) -> tuple[str, ...]:
    """Return the `ip` commands that bridge a machine to its instance's link.

    The bridge has the gateway's address, from which DHCP answers. It answers no ARP, so that packets to the gateway
    reach the router.
    """
    ip, length = instance.private_ip, ipaddress.IPv4Network(subnet.cidr).prefixlen
    return (
        # The machine's card has the instance's own MAC address.
        f"link set eth0 address {_other_mac(ip, 0x43)}",
        f"tuntap add dev {TAP} mode tap vnet_hdr",
        f"link add {_BRIDGE} address {_other_mac(ip, 0x44)} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
        f"link set {_BRIDGE} arp off",
        f"link set eth0 master {_BRIDGE}",
        f"link set {TAP} master {_BRIDGE}",
        f"addr add {gateway(subnet.cidr)}/{length} dev {_BRIDGE}",
        *(f"link set {name} up" for name in ("eth0", TAP, _BRIDGE)),
        f"neigh replace {ip} lladdr {mac(ip)} dev {_BRIDGE} nud permanent",
    )


def dhcp_configuration(instance: Instance, subnet: Subnet) -> str:
    """Return dnsmasq's configuration: DHCP with the values of a VPC's DHCP server, and no DNS."""
    ip, network = instance.private_ip, ipaddress.IPv4Network(subnet.cidr)
    lines = [
        "port=0",
        "user=root",
        "pid-file=",
        "leasefile-ro",
        "no-ping",
        "dhcp-authoritative",
        f"interface={_BRIDGE}",
        "except-interface=lo",
        "bind-interfaces",
        f"dhcp-range={network.network_address},static,{network.netmask},infinite",
        f"dhcp-host={mac(ip)},{ip},{hostname(ip)},infinite",
        f"dhcp-option=option:router,{gateway(subnet.cidr)}",
        f"dhcp-option=option:dns-server,{RESOLVER_ADDRESS}",
        f"dhcp-option=option:domain-name,{DOMAIN}",
    ]
    return "".join(f"{line}\n" for line in lines)


def server_link(file_system_id: str) -> str:
    """Return the name of the router's end of a file server's link: at most 15 characters, the kernel's limit."""
    return "n" + file_system_id[-13:]


def server_link_commands(file_system_id: str, namespace_path: str) -> tuple[str, ...]:
    """Return the `ip` commands that link a file server to its router; run them in the router."""
    name = server_link(file_system_id)
    return (f"link add name {name} type veth peer name eth0 netns {namespace_path}", f"link set {name} up")


def server_commands() -> tuple[str, ...]:
    """Return the `ip` commands for a file server's namespace, once it is linked."""
    return (
        f"tuntap add dev {TAP} mode tap vnet_hdr",
        f"addr add {_SERVER_GATEWAY}/30 dev {TAP}",
        f"link set {TAP} up",
        "link set eth0 up",
        # The router answers for every host.
        "route add default dev eth0",
    )


def server_ruleset() -> str:
    """Return the nftables ruleset of a file server's namespace. It forwards NFS from the router to the server."""
    return "\n".join(
        [
            "table ip server {",
            "  chain prerouting {",
            "    type nat hook prerouting priority dstnat; policy accept;",
            f'    iifname "eth0" tcp dport 2049 dnat to {SERVER_ADDRESS}',
            "  }",
            "}",
            "",
        ]
    )
