"""The output of `fab prices`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cluster.tasks import prices


def test_only_a_refresh_waits_for_aws(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    waits = list[float]()

    def every_price(_prices: object, _types: object, wait_s: float) -> dict[str, None]:
        waits.append(wait_s)
        return {}

    session = SimpleNamespace(
        config=SimpleNamespace(master_instance_type="t3.medium", worker_types=("c5.2xlarge",)),
        aws=SimpleNamespace(price_region="us-east-1"),
        prices=SimpleNamespace(refresh=lambda *_: ["no answer"]),
    )
    monkeypatch.setattr(prices, "Session", lambda *_: session)
    monkeypatch.setattr(prices, "every_price", every_price)
    for refresh, note in ((False, ""), (True, "not refreshed: no answer")):
        prices.prices.body(refresh=refresh, json=True)
        assert note in capsys.readouterr().err
    assert waits == [0.0, prices.WAIT_S]
