"""`fab status`: its output and the order of its parts."""

from __future__ import annotations

import threading
from typing import Any
from unittest import mock

import pytest

from cluster.errors import AwsError, RemoteError
from cluster.nodes.occupancy import Occupancy
from cluster.nodes.unused_files import Leftovers
from cluster.runs.supervisor_client import Supervisor
from cluster.tasks import status
from tests.factories import make_inventory, make_master_instance, make_node


@pytest.mark.parametrize("clearing", [True, False])
def test_warnings_survive_clearing_of_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clearing: bool
) -> None:
    def nodes(_: object, report: Any) -> list[Any]:
        report("a line is invalid")
        return [make_node(1)]

    session = mock.Mock()
    session.nodes.side_effect = nodes
    replaced = {"time": 0.0, "node": "worker4", "instance_id": "i-1", "reason": "silent", "trouble": ""}
    session.supervisor.return_value.occupancy.return_value = Occupancy(replaced=(replaced,))
    monkeypatch.setattr("cluster.nodes.node_load.read", lambda *_: {})
    monkeypatch.setattr("cluster.aws.inventory.find", lambda *_: make_inventory(1))
    monkeypatch.setattr(status, "print_status", lambda *_, **__: print("the nodes"))
    monkeypatch.setattr(status, "warn", lambda text: print(f"warning: {text}"))
    monkeypatch.setattr(status, "print_note", print)
    status._show_load(session, mock.Mock(), "/tree", clearing=clearing, as_json=False)
    out = capsys.readouterr().out
    assert out.count("warning: a line is invalid") == 1
    assert "worker4 (i-1) was replaced at 00:00 UTC: silent" in out
    assert (out.index("the nodes") < out.index("warning: ")) == (status.CLEAR in out) == clearing


def test_first_deployment_without_instances_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = mock.Mock()
    session.load_inventory.side_effect = AwsError("stack deepcdk (CREATE_IN_PROGRESS) lacks the outputs")
    monkeypatch.setattr(
        "cluster.aws.launch_failures.describe_since", lambda *_: ["the group cannot launch an instance"]
    )
    with pytest.raises(AwsError, match="CREATE_IN_PROGRESS"):
        status._load(session)
    assert "the group cannot launch an instance" in capsys.readouterr().err


def test_live_runs_and_uploads_are_requested_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = threading.Barrier(2, timeout=30)
    monkeypatch.setattr(
        Supervisor, "occupancy", lambda _: (both.wait(), Occupancy(hosts={"r1": ("deeplearning-worker1",)}))[1]
    )
    monkeypatch.setattr(Leftovers, "shared", lambda _: (both.wait(), [])[1])
    session = mock.MagicMock()
    session.load_inventory.return_value = make_inventory(instances=(make_master_instance(),))
    status._show_runs(session)
    out = capsys.readouterr().out
    assert "run r1 is live on worker1" in out and "uploads on the shared file system: none" in out
    session.push_agent.assert_not_called()


def test_agent_is_pushed_if_the_master_does_not_have_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def occupancy(_: object) -> Occupancy:
        if not session.push_agent.called:
            raise RemoteError("the supervisor's `status` failed", status=1, output="No such file or directory")
        return Occupancy(hosts={"r1": ("deeplearning-worker1",)})

    session = mock.MagicMock()
    session.load_inventory.return_value = make_inventory(instances=(make_master_instance(),))
    monkeypatch.setattr(Supervisor, "occupancy", occupancy)
    monkeypatch.setattr(Leftovers, "shared", lambda _: [])
    status._show_runs(session)
    assert "run r1 is live on worker1" in capsys.readouterr().out
    session.push_agent.assert_called_once()


def test_ctrl_c_stops_both_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = threading.Event()
    session = mock.MagicMock()
    session.load_inventory.return_value = make_inventory(instances=(make_master_instance(),))
    session.connect.return_value.__enter__.return_value.close.side_effect = closed.set
    monkeypatch.setattr(Supervisor, "occupancy", lambda _: closed.wait(30))
    monkeypatch.setattr(Leftovers, "shared", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        status._show_runs(session)
    assert closed.is_set()
