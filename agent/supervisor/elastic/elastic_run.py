"""The hosts of an elastic run while its launcher runs: which are offered to it, and which it tells that it has."""

from __future__ import annotations

import dataclasses
import math
import shutil
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.launch.elastic import offers
from agent.launch.elastic.offers import Offer
from agent.spec.nodes import Node
from agent.spec.run import RunSpec, placed
from agent.supervisor.failure import leaving_hosts

LEAVING_S: Final = 5.0
"""Time between two looks for hosts that are about to end."""
JOIN_S: Final = 600.0
"""How long a host that was offered may take to ask for a place: its ranks import TensorFlow, and read their data."""
RETRY_S: Final = 600.0
"""After so long a host that did not join may be tried again: what kept it may be over."""


def describe(reformed: Mapping[str, Any]) -> str:
    """Return how the ranks formed anew, in words."""
    took = "" if reformed["seconds"] is None else f", after {reformed['seconds']:.1f} s"
    return f"goes on with {placed(reformed['ranks'], reformed['hosts'])}{took}, for {reformed['for']}"


class ElasticRun:
    """What the supervisor and the launcher of one elastic run tell each other."""

    def __init__(self, spec: RunSpec, folder: Path | None = None) -> None:
        """`spec`: of this attempt, whose hosts are the first that are offered."""
        self._folder = folder or offers.folder_of(spec.run_id)
        self._guard = threading.Lock()
        self._offers = [Offer(node=node, number=number) for number, node in enumerate(spec.hosts, start=1)]
        self._next_number = len(self._offers) + 1
        self._told = 0
        self._looked = -LEAVING_S
        self._offered_at: dict[str, float] = {}
        """When each host was offered whose ranks have not asked for a place yet, by instance id."""
        self._refused: dict[str, float] = {}
        """Until when each host that did not join is not to be tried again, by instance id; inf: for good."""
        self.present: tuple[Node, ...] = spec.hosts
        """The hosts of the present round."""

    def begin(self) -> None:
        """Offer the first hosts; nothing that an earlier attempt has told stays."""
        shutil.rmtree(self._folder, ignore_errors=True)
        offers.write_offers(self._folder, self._offers)

    def end(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def look(self) -> list[dict[str, Any]]:
        """Return how the ranks have formed anew since the last call; hosts that were lost are no longer offered."""
        told = [dict(each) for each in offers.read_told(self._folder, self._told)]
        self._told += len(told)
        for each in told:
            if host := each.get("waits"):
                with self._guard:
                    self._offered_at.pop(host, None)
            elif host := each.get("unjoined"):
                self.refuse([host], for_good=each["for_good"])
        found = [each for each in told if "hosts" in each]
        for each in found:
            self._take(each)
        self.refuse(self._late(time.monotonic()))
        return found

    def _take(self, reformed: Mapping[str, Any]) -> None:
        """Take note of the hosts of a new round, and offer those no longer that were lost."""
        before = {node.name: node.instance_id for node in self.present}
        with self._guard:
            # By the offer: a host that has taken a lost one's name is not that one.
            nodes = {offer.node.name: offer.node for offer in self._offers}
            self.present = tuple(nodes[name] for name in reformed["hosts"] if name in nodes)
            there = {node.instance_id for node in self.present}
            for instance_id in there:
                self._offered_at.pop(instance_id, None)
                self._refused.pop(instance_id, None)
        self.withdraw({before[name] for name in reformed["lost"] if name in before} - there)

    def _late(self, now: float) -> list[str]:
        """Return the hosts whose ranks have not asked for a place in all that time, by instance id."""
        with self._guard:
            return [instance_id for instance_id, at in self._offered_at.items() if now - at >= JOIN_S]

    def refuse(self, instance_ids: Collection[str], *, for_good: bool = False) -> None:
        """Offer hosts no longer that could not be prepared, or did not join, and try them again later, if at all."""
        until = math.inf if for_good else time.monotonic() + RETRY_S
        with self._guard:
            for instance_id in instance_ids:
                self._refused[instance_id] = max(until, self._refused.get(instance_id, until))
        self.withdraw(instance_ids)

    def refused(self, *, at: float = -math.inf) -> dict[str, bool]:
        """Return the hosts that were refused and have not joined since, by instance id, and whether for good.

        `at`: without those that may be tried again by then, on the clock of `time.monotonic`.
        """
        with self._guard:
            return {id: until == math.inf for id, until in self._refused.items() if until > at}

    def offer(self, nodes: Sequence[Node]) -> None:
        """Offer further hosts, which are prepared."""
        with self._guard:
            names = {node.name for node in nodes}
            kept = [each for each in self._offers if each.node.name not in names]
            new = [Offer(node=node, number=self._next_number + place) for place, node in enumerate(nodes)]
            self._next_number += len(new)
            self._offers = [*kept, *new]
            self._offered_at |= {node.instance_id: time.monotonic() for node in nodes}
            offers.write_offers(self._folder, self._offers)

    def withdraw(self, instance_ids: Collection[str]) -> None:
        """Offer hosts no longer: ranks leave them between two steps."""
        with self._guard:
            for instance_id in instance_ids:
                self._offered_at.pop(instance_id, None)
            kept = [each for each in self._offers if each.node.instance_id not in instance_ids]
            if len(kept) < len(self._offers):
                self._offers = kept
                offers.write_offers(self._folder, self._offers)

    def let_leave(self, spec: RunSpec) -> None:
        """Have the ranks leave hosts that are about to end, where enough others stay; look every few seconds."""
        now = time.monotonic()
        if now - self._looked < LEAVING_S:
            return
        self._looked, offered = now, self.offered
        leaving = [host for host in offered if leaving_hosts(dataclasses.replace(spec, hosts=(host,)))]
        # One that has not joined yet cannot go on for the others.
        staying = [host for host in self.present if host in offered and host not in leaving]
        if leaving and len(staying) >= max(1, spec.min_nodes):
            self.withdraw([host.instance_id for host in leaving])

    @property
    def offered(self) -> tuple[Node, ...]:
        """Return the hosts that are offered."""
        with self._guard:
            return tuple(each.node for each in self._offers)

    def judged(self, spec: RunSpec) -> RunSpec:
        """Return the spec with the present hosts, by which it is judged what ended the launcher."""
        return dataclasses.replace(spec, hosts=self.present) if self.present else spec
