"""Facts about the hosts that are given up, since their ranks do not ask for a place."""

from __future__ import annotations

import dataclasses
import threading

from agent.launch.elastic.membership import MemberHost
from agent.launch.elastic.silent_hosts import GIVE_UP_S, SILENT_S, SilentHosts
from agent.spec.nodes import Node
from tests.factories import make_node
from tests.waiting import eventually

ONE, TWO = (MemberHost(node=make_node(number), members=(number,)) for number in (1, 2))


@dataclasses.dataclass
class Cluster:
    """Hosts that are asked, and the time."""

    now: float = 100.0
    gone: set[str] = dataclasses.field(default_factory=set)
    asked: list[str] = dataclasses.field(default_factory=list)
    may_answer: threading.Event = dataclasses.field(default_factory=threading.Event)

    def is_there(self, node: Node) -> bool:
        self.asked.append(node.name)
        self.may_answer.wait(60.0)
        return node.name not in self.gone

    def silent_hosts(self) -> SilentHosts:
        return SilentHosts(self.is_there, lambda: self.now)


def test_hosts_are_asked_after_some_seconds_and_one_that_is_gone_is_given_up() -> None:
    cluster = Cluster(gone={TWO.node.name})
    silent_hosts = cluster.silent_hosts()
    cluster.may_answer.set()
    assert silent_hosts.look([ONE, TWO]) == []
    cluster.now += SILENT_S - 0.1
    assert silent_hosts.look([ONE, TWO]) == [] == cluster.asked
    cluster.now += 0.1
    assert silent_hosts.look([ONE, TWO]) == []
    assert eventually(lambda: silent_hosts.look([ONE, TWO])) == [(TWO, "deeplearning-worker2 no longer answers")]


def test_a_host_is_asked_once_at_a_time_and_again_after_it_has_answered() -> None:
    cluster = Cluster()
    silent_hosts = cluster.silent_hosts()
    silent_hosts.look([ONE])
    cluster.now += SILENT_S
    for _ in range(3):
        assert silent_hosts.look([ONE]) == []
    eventually(lambda: cluster.asked)
    assert silent_hosts.look([ONE]) == []
    assert cluster.asked == ["deeplearning-worker1"]
    cluster.may_answer.set()
    eventually(lambda: not silent_hosts.look([ONE]) and len(cluster.asked) > 1)


def test_a_host_that_answers_and_whose_ranks_stay_silent_is_given_up_in_the_end() -> None:
    cluster = Cluster()
    silent_hosts = cluster.silent_hosts()
    silent_hosts.look([ONE])
    cluster.now += GIVE_UP_S
    assert silent_hosts.look([ONE]) == [(ONE, "deeplearning-worker1 did not leave its step")]


def test_the_time_counts_anew_once_none_was_silent() -> None:
    cluster = Cluster()
    silent_hosts = cluster.silent_hosts()
    for _ in range(2):
        silent_hosts.look([ONE])
        cluster.now += SILENT_S - 0.1
        silent_hosts.look([])
    assert silent_hosts.look([ONE]) == [] == cluster.asked
