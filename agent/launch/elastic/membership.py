"""Which ranks an elastic run has, which of them wait for a place, and the places of the next round. Pure.

A round is what holds from one forming of the ranks to the next. It needs all ranks of all hosts that are left: each
leaves its step when it finds another one gone, and asks. A host takes part with all its ranks or with none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from agent.spec.elastic import Place
from agent.spec.nodes import Node


@dataclasses.dataclass(kw_only=True)
class MemberHost:
    """The ranks of one host, by the numbers with which they were started."""

    node: Node
    members: tuple[int, ...]
    round: int = 0
    """The last one that it had a place in; 0: none yet."""
    waiting: set[int] = dataclasses.field(default_factory=set)
    joined: set[int] = dataclasses.field(default_factory=set)
    """Those that have joined the others in the present round."""
    leaves: bool = False
    """Whether it is to have no place in the next round."""
    has_ended: bool = False
    """Whether all its ranks have ended well."""
    data: dict[int, str] = dataclasses.field(default_factory=dict)
    """The digest of the data that each of its ranks reads, of those that have said it."""

    @property
    def all_wait(self) -> bool:
        """Return whether each of its ranks waits for a place."""
        return len(self.waiting) == len(self.members)


class Membership:
    """The hosts of an elastic run in rank order: the oldest first, so that rank 0 is one that has been there."""

    def __init__(self, least: int) -> None:
        """`least`: hosts that a round must have."""
        self.least = least
        self.round = 0
        self.data = frozenset[str]()
        """Digests of the data of the first round: one, where its ranks are to agree on them."""
        self.hosts: list[MemberHost] = []
        self._next_member = 0
        self._lost: list[tuple[str, tuple[int, ...]]] = []
        self._ranks: dict[int, int] = {}
        """Of the present round, by member."""
        self._why: list[str] = []

    def add(self, node: Node) -> MemberHost:
        """Add a host, whose ranks are about to be started."""
        first, self._next_member = self._next_member, self._next_member + node.slots
        host = MemberHost(node=node, members=tuple(range(first, self._next_member)))
        self.hosts.append(host)
        return host

    def of(self, member: int) -> MemberHost | None:
        """Return the host of a rank; None for one that is no longer there."""
        return next((host for host in self.hosts if member in host.members), None)

    @property
    def present(self) -> list[MemberHost]:
        """Return the hosts of the present round that are left."""
        return [host for host in self.hosts if host.round and host.round == self.round]

    @property
    def is_ending(self) -> bool:
        """Return whether ranks have ended well: the run is over for all, and there is no further round."""
        return any(host.has_ended for host in self.present)

    @property
    def is_over(self) -> bool:
        """Return whether there is nothing to join: the run ends, or no host is left of the present round."""
        return self.is_ending or bool(self.round and not self.present)

    @property
    def has_joined(self) -> bool:
        """Return whether all ranks that are left have joined in the present round."""
        return all(len(host.joined) == len(host.members) for host in self.present)

    def ask(self, member: int, data: str = "") -> bool:
        """Take note that a rank waits for a place; return False where there is none for it.

        `data`: the digest of what it reads; "" where it does not say.
        """
        host = self.of(member)
        if host is None or self.is_over:
            return False
        host.waiting.add(member)
        if data:
            host.data[member] = data
        return True

    def join(self, member: int) -> None:
        """Take note that a rank has joined the others."""
        if host := self.of(member):
            host.joined.add(member)

    def lose(self, host: MemberHost, why: str) -> None:
        """Take out a host that is lost."""
        self.hosts.remove(host)
        if host.round and host.round == self.round:
            self._lost.append((host.node.name, tuple(self._ranks[member] for member in host.members)))
            self._why.append(why)

    @property
    def silent(self) -> list[MemberHost]:
        """Return the hosts on which ranks do not ask while others wait for a place; none where nobody waits."""
        present = [host for host in self.present if not host.has_ended]
        return [host for host in present if not host.all_wait] if any(host.waiting for host in present) else []

    @property
    def strangers(self) -> list[MemberHost]:
        """Return the hosts that wait to join, and whose ranks read other data than those of the first round."""
        new = [host for host in self.hosts if self.round and not host.round]
        return [host for host in new if self.data and not self.data.issuperset(host.data.values())]

    @property
    def _joining(self) -> list[MemberHost]:
        """Return the hosts that have no place yet, and are to have one."""
        strangers = self.strangers
        return [h for h in self.hosts if not h.round and h.all_wait and not h.leaves and h not in strangers]

    @property
    def is_wanted(self) -> bool:
        """Return whether the ranks are to form anew between two steps: a host waits to join, or is to leave."""
        return bool(self.round) and bool(self._joining or any(host.leaves for host in self.present))

    @property
    def is_ready(self) -> bool:
        """Return whether all ranks wait that the next round needs."""
        needed = self.present if self.round else self.hosts
        return bool(needed) and not self.is_ending and all(host.all_wait for host in needed)

    @property
    def next_hosts(self) -> list[MemberHost]:
        """Return the hosts of the next round as it would be now, in rank order."""
        return [*(host for host in self.present if not host.leaves), *self._joining]

    def form(self, address: str, port: int) -> dict[int, Place]:
        """Begin the next round, whose ranks meet at this address; return their places by member.

        Hosts that leave are taken out.
        """
        hosts, first = self.next_hosts, not self.round
        for host in [host for host in self.present if host.leaves]:
            self.lose(host, f"{host.node.name} leaves the cluster")
        joined = () if first else tuple(host.node.name for host in hosts if not host.round)
        why = "; ".join(self._why) or (
            f"{', '.join(joined)} joined" if joined else "" if first else "a lost connection"
        )
        if first:
            self.data = frozenset(data for host in hosts for data in host.data.values())
        self.round += 1
        found, rank = {}, 0
        for host in hosts:
            for slot, member in enumerate(host.members):
                found[member] = Place(
                    round=self.round,
                    rank=rank,
                    size=sum(len(each.members) for each in hosts),
                    local_rank=slot,
                    local_size=len(host.members),
                    cross_rank=_with_slot(hosts[: hosts.index(host)], slot),
                    cross_size=_with_slot(hosts, slot),
                    address=address,
                    port=port,
                    lost=tuple(name for name, _ in self._lost),
                    lost_ranks=tuple(sorted(each for _, ranks in self._lost for each in ranks)),
                    joined=joined,
                    why=why,
                )
                rank += 1
            host.round, host.waiting, host.joined = self.round, set(), set()
        self._ranks = {member: place.rank for member, place in found.items()}
        self._lost, self._why = [], []
        return found


def _with_slot(hosts: Sequence[MemberHost], slot: int) -> int:
    """Return how many hosts have a rank with this number among those of its host."""
    return sum(len(host.members) > slot for host in hosts)
