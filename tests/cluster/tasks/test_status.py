"""`fab status`: its output and the order of its parts."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from cluster.errors import AwsError
from cluster.nodes.occupancy import Occupancy
from cluster.tasks import status
from tests.factories import make_inventory, make_node


@pytest.mark.parametrize("clearing", [True, False])
def test_warnings_are_printed_where_the_cleared_terminal_does_not_lose_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], clearing: bool
) -> None:
    def nodes(_: object, report: Any) -> list[Any]:
        report("a line is invalid")
        return [make_node(1)]

    session = mock.Mock()
    session.nodes.side_effect = nodes
    replaced = {"time": 0.0, "node": "worker4", "instance_id": "i-1", "reason": "silent", "trouble": ""}
    session.supervisor.return_value.occupancy.return_value = Occupancy(replaced=(replaced,))
    monkeypatch.setattr("cluster.nodes.load.read", lambda *_: {})
    monkeypatch.setattr("cluster.aws.inventory.refresh", lambda *_: make_inventory(1))
    monkeypatch.setattr(status, "print_status", lambda *_, **__: print("the nodes"))
    monkeypatch.setattr(status, "warn", lambda text: print(f"warning: {text}"))
    monkeypatch.setattr(status, "print_note", print)
    status._show_load(session, mock.Mock(), "/tree", clearing=clearing, as_json=False)
    out = capsys.readouterr().out
    assert out.count("warning: a line is invalid") == 1
    assert "worker4 (i-1) was replaced at 00:00 UTC: silent" in out
    assert (out.index("the nodes") < out.index("warning: ")) == (status.CLEAR in out) == clearing


def test_a_first_deployment_without_instances_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = mock.Mock()
    session.load_inventory.side_effect = AwsError("stack deepcdk (CREATE_IN_PROGRESS) lacks the outputs")
    monkeypatch.setattr("cluster.aws.launches.describe_since", lambda *_: ["the group cannot launch an instance"])
    with pytest.raises(AwsError, match="CREATE_IN_PROGRESS"):
        status._load(session)
    assert "the group cannot launch an instance" in capsys.readouterr().err
