"""The cost of candidates per hour."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from cluster.aws.price_list import Price
from cluster.planner.cluster_prices import look_up
from cluster.planner.hardware import hardware_of
from cluster.session import Session


@pytest.fixture
def unanswered(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """Return a session without an answer from the price list."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setattr(session.prices, "begin", lambda kinds: None)
    session.config = dataclasses.replace(session.config, ssh_cidr=("198.51.100.7/32",))
    return session


def test_cluster_cost_includes_workers_and_other_resources(unanswered: Session) -> None:
    found = look_up(unanswered, [hardware_of("p4d.24xlarge")], wait_s=0)
    price = found.by_type["p4d.24xlarge"]
    assert price.node == pytest.approx(21.9576 + 100 * 0.08 / 730)
    assert price.rest == pytest.approx(0.0416 + 50 * 0.08 / 730 + 0.045 + 2 * 0.005)
    assert "workers with their root volumes, and a t3.medium master" in found.sentences[0]
    assert "a NAT gateway $0.045/h" in found.sentences[0]
    assert "prices of 2026-" in found.sentences[0]
    assert found.sentences[0].endswith(
        "not included: up to $0.080/h for CPU credits (t3.medium), other storage and traffic"
    )
    assert json.dumps(found.document())


def test_burstable_workers_cost_cpu_credits(unanswered: Session) -> None:
    found = look_up(unanswered, [hardware_of("t3.xlarge")], wait_s=0)
    assert found.by_type["t3.xlarge"].node == pytest.approx(0.1664 + 4 * 0.6 * 0.05 + 100 * 0.08 / 730)
    assert "workers with their root volumes and CPU credits" in found.sentences[0]


def test_type_without_price_is_reported_with_price_none(unanswered: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-nowhere-1")
    found = look_up(unanswered, [hardware_of("p4d.24xlarge")], wait_s=0)
    assert found.by_type["p4d.24xlarge"].node is None
    assert found.sentences[-1].startswith("the price of p4d.24xlarge in eu-nowhere-1 is unknown; to get it, use ")
    assert "a NAT gateway unknown" in found.sentences[0]
    assert "costs in eu-nowhere-1: workers, and a t3.medium master unknown, " in found.sentences[0]


def test_without_region_prices_of_a_named_region_are_used(
    unanswered: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    found = look_up(unanswered, [hardware_of("p4d.24xlarge")], wait_s=0)
    assert found.by_type["p4d.24xlarge"].node == pytest.approx(21.9576 + 100 * 0.08 / 730)
    no_region = "no AWS region is set: these are prices of us-east-1; for another region, set AWS_REGION"
    assert found.sentences[0] == no_region
    assert found.document()["region_is_set"] is False


def test_spot_price_is_refreshed_or_unknown(unanswered: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    types = [hardware_of("p4d.24xlarge")]
    before = look_up(unanswered, types, wait_s=0)
    assert before.by_type["p4d.24xlarge"].spot_node is None
    refresh = "`fab prices --instance p4d.24xlarge --refresh`"
    assert before.sentences[1] == f"no spot price is known; to get it: {refresh}"
    spot = Price(usd=9.5, unit="hour", date="2026-11-24", source="EC2")
    monkeypatch.setattr(unanswered.prices, "spot", {"p4d.24xlarge": spot}.get)
    after = look_up(unanswered, types, wait_s=0)
    assert after.by_type["p4d.24xlarge"].spot_node == pytest.approx(9.5 + 100 * 0.08 / 730)
    assert not any("spot" in sentence for sentence in after.sentences)
