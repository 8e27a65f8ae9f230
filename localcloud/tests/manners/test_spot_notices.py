"""Spot instances that are taken back: first recommended, then noticed, then ended."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from localcloud.api.ec2 import spot_interruption
from localcloud.manners import spot_notices
from localcloud.manners.draws import Draws
from localcloud.manners.spot_notices import NOTICED_S, RECOMMENDED_S, SpotNotices
from localcloud.network.instance_metadata import answer
from localcloud.snapshot import Instance


class Ec2:
    """As much of a backend as spot instances need."""

    def __init__(self) -> None:
        self.reservations: dict[str, Any] = {}

    def get_instance(self, instance_id: str) -> Any:
        return self.reservations[instance_id].instances[0]

    def run_instances(self, lifecycle: str | None) -> Any:
        id = f"i-{len(self.reservations)}"
        made = SimpleNamespace(id=id, lifecycle=lifecycle, _state=SimpleNamespace(name="running"))
        self.reservations[id] = SimpleNamespace(instances=[made])
        return self.reservations[id]


def test_one_in_four_spot_instances_is_recommended_and_then_noticed_and_no_other_instance() -> None:
    now = 0.0
    ec2, notices = Ec2(), SpotNotices(Draws(1), clock=lambda: now)
    notices.attach(ec2)
    spot = [ec2.run_instances("spot").instances[0] for _ in range(200)]
    others = [ec2.run_instances(None).instances[0] for _ in range(200)]
    now = RECOMMENDED_S[0] - 1
    assert not notices.settle(ec2)
    now = RECOMMENDED_S[1]
    assert notices.settle(ec2)
    recommended = [each for each in spot if spot_interruption.recommended_at(each)]
    assert 30 < len(recommended) < 70
    assert any(not spot_interruption.deadline(each) for each in recommended), "some are noticed later"
    now += NOTICED_S[1]
    assert notices.settle(ec2)
    assert [each for each in spot if spot_interruption.deadline(each)] == recommended
    assert not notices.settle(ec2), "each once"
    assert not any(spot_interruption.recommended_at(each) for each in others)


def test_an_instance_that_is_gone_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spot_notices, "PROBABILITY", 1.0)
    ec2, notices = Ec2(), SpotNotices(Draws(1), clock=lambda: 1e9)
    notices.attach(ec2)
    ec2.run_instances("spot").instances[0]._state.name = "terminated"
    assert not notices.settle(ec2)


def test_the_metadata_shows_the_recommendation() -> None:
    empty: dict[str, Any] = dict.fromkeys(
        ("subnet_id", "vpc_id", "zone", "public_ip", "image_id", "instance_type", "public_key", "key_name"), ""
    )
    common: dict[str, Any] = {"id": "i-1", "private_ip": "10.0.0.4", "group_ids": (), "user_data": b"", "tags": ()}
    for given in ("", "2026-11-23T12:00:00Z"):
        instance = Instance(
            **empty, **common, profile_arn="", role_name="", metadata_tokens_required=True, spot=True,
            rebalance_at=given,
        )  # fmt: skip
        path = "meta-data/events/recommendations/rebalance"
        body = answer(instance, path, region="us-east-1", account="1", credentials=lambda role, id: {})
        assert (json.loads(body) if body else None) == ({"noticeTime": given} if given else None)
