"""Facts about a rank's questions to the launcher, and about the server that answers them."""

from __future__ import annotations

import http.client
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent.launch.elastic.launcher_client import DismissedError, LauncherClient, LauncherLostError, ReformWatch
from agent.launch.elastic.membership import Membership
from agent.launch.elastic.places import Answers, Server
from agent.spec.elastic import FirstStep, Place
from tests.factories import make_node
from tests.waiting import eventually


class Launcher:
    """A server over a membership of two hosts with a rank each."""

    def __init__(self) -> None:
        self.membership = Membership(1)
        self.hosts = [self.membership.add(make_node(index)) for index in (1, 2)]
        self.answers = Answers(self.membership)
        self.address = f"127.0.0.1:{Server(self.answers).port}"

    def client(self, member: int) -> LauncherClient:
        return LauncherClient(self.address, str(member), pause_s=0.01)

    def form(self) -> None:
        """Give places once all ranks wait."""
        with self.answers.changed:
            self.answers.changed.wait_for(lambda: self.membership.is_ready, timeout=30)
            self.answers.places = self.membership.form("127.0.0.1", 4000)
            self.answers.changed.notify_all()


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


def test_ranks_wait_for_each_other_and_get_their_places(launcher: Launcher) -> None:
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(launcher.client(member).wait_for_place) for member in (0, 1)]
        launcher.form()
        places: list[Place] = [each.result(timeout=30) for each in waiting]
    assert [(place.rank, place.size, place.port) for place in places] == [(0, 2, 4000), (1, 2, 4000)]
    for member in (0, 1):
        launcher.client(member).report_joined()
    assert launcher.membership.has_joined


def test_a_rank_whose_host_is_lost_while_it_waits_is_dismissed(launcher: Launcher) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(launcher.client(0).wait_for_place)
        eventually(lambda: launcher.hosts[0].waiting)
        with launcher.answers.changed:
            launcher.membership.lose(launcher.hosts[0], "cut off")
            launcher.answers.changed.notify_all()
        with pytest.raises(DismissedError):
            waiting.result(timeout=30)


def test_rank_0_learns_that_another_host_waits_and_reports_the_first_step_after(launcher: Launcher) -> None:
    with ThreadPoolExecutor(3) as pool:
        first = [pool.submit(launcher.client(member).wait_for_place) for member in (0, 1)]
        launcher.form()
        assert [each.result(timeout=30).round for each in first] == [1, 1]
        with ReformWatch(launcher.client(0), every_s=0.01).watching() as watch:
            assert not watch()
            with launcher.answers.changed:
                launcher.membership.add(make_node(3))
            waiting = [pool.submit(launcher.client(2).wait_for_place)]
            eventually(watch)
        waiting += [pool.submit(launcher.client(member).wait_for_place) for member in (0, 1)]
        launcher.form()
        assert [each.result(timeout=30).rank for each in waiting] == [2, 0, 1]
    step = FirstStep(round=2, step=9, steps_lost=0, seconds=1.5)
    launcher.client(0).report_step(FirstStep(round=1, step=9, steps_lost=0, seconds=1.5))
    launcher.client(0).report_step(step)
    assert launcher.answers.steps == [step]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/", b"", 404),
        ("GET", "/place/x", b"", 404),
        ("GET", "/place/77", b"", 410),
        ("PUT", "/stepped", b"{}", 400),
        ("PUT", "/joined/x", b"", 400),
        ("PUT", "/other", b"", 400),
        ("DELETE", "/place/0", b"", 501),
    ],
)
def test_what_no_rank_asks_is_refused(launcher: Launcher, method: str, path: str, body: bytes, status: int) -> None:
    connection = http.client.HTTPConnection(launcher.address, timeout=30)
    connection.request(method, path, body)
    assert connection.getresponse().status == status


def test_a_launcher_that_is_gone_is_reported_with_its_address() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    client = LauncherClient(address, "0", pause_s=0.0)
    with pytest.raises(LauncherLostError, match=address):
        client.wait_for_place()
    assert not client.is_reform_wanted()
    client.report_step(FirstStep(round=1, step=1, steps_lost=0, seconds=0.0))


def test_only_a_rank_of_an_elastic_run_has_a_launcher() -> None:
    assert LauncherClient.from_environ({}) is None
    assert LauncherClient.from_environ({"DEEPCDK_ELASTIC": "10.0.0.5:4000", "DEEPCDK_MEMBER": "3"}) is not None
