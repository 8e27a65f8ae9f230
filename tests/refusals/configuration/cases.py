"""Entries that a configuration could break, which validation refuses before anything is composed."""

from __future__ import annotations

from typing import Any, Final

from tests.refusals.case import Case, Values


def _key(entry: str, key: str, wrong: Any, right: Any, **others: Any) -> Case[Values]:
    """Return the case of a key that has a wrong value and a right one beside the same others."""
    return Case(entry, {key: wrong, **others}, key, {key: right, **others})


CASES: Final[tuple[Case[Values], ...]] = (
    _key("EC2-30", "worker_volume_iops", 50_001, 50_000, worker_volume_gib=100),
    _key("EC2-31", "worker_volume_mib_s", 1000, 750, worker_volume_iops=3000),
    _key("EC2-47", "tags", ["aws:owner=me"], ["owner=me"]),
    _key("BUD-06", "budget_emails", ["ops"], ["ops@example.com"], budget_usd=5),
    _key("EFS-02", "efs_throughput_mibps", 64, 0, efs_throughput="bursting"),
    _key("FSX-01", "fsx_capacity_gib", 3600, 2400),
    _key("FSX-02", "fsx_throughput", 200, 250, fsx_capacity_gib=1200, fsx_deployment="PERSISTENT_2"),
)
