"""What the record of an earlier run says of its nodes, whatever ran on them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cluster.report.run_files import document


class Past(Protocol):
    """Something that was measured by a run."""

    @property
    def run_id(self) -> str:
        """Return the run's id."""

    @property
    def finished(self) -> float:
        """Return when it ended, Unix time."""


def is_embedded(record: Mapping[str, Any]) -> bool:
    """Return whether the nodes of a run were an embedded cloud's; so counts what does not say otherwise."""
    return document(record.get("origin")).get("endpoint") != ""


def type_of(record: Mapping[str, Any]) -> str:
    """Return the instance type of a run's nodes, "" where they had several or it is not told."""
    instances = document(document(record.get("origin")).get("instance_types"))
    hosts = document(record.get("spec")).get("hosts")
    ids = [document(host).get("instance_id") for host in hosts] if isinstance(hosts, list) else []
    types = {str(instances.get(each, "")) for each in ids if isinstance(each, str)}
    return types.pop() if len(types) == 1 else ""


def fabric_of(record: Mapping[str, Any]) -> tuple[bool, bool]:
    """Return whether the nodes of a run had EFA, and whether they were in a placement group, as EFA demands."""
    config = document(document(record.get("origin")).get("config"))
    efa = config.get("efa") is True
    return efa, efa or config.get("placement_group") is True


def source(found: Sequence[Past], what: str) -> str:
    """Return where a figure comes from: the newest run, which is the first, and how many the range spans."""
    day = datetime.datetime.fromtimestamp(found[0].finished, datetime.UTC)
    others = len({each.run_id for each in found}) - 1
    more = f"; the range is that of {others + 1} runs" if others else ""
    return f"run {found[0].run_id} of {day:%Y-%m-%d}, {what}{more}"
