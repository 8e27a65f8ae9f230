from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.stage import Stage, carried_out, inside, started_host
from localcloud.chaos.file_faults import FILLER
from localcloud.chaos.leftovers import end_all
from localcloud.chaos.network_faults import TABLE
from localcloud.chaos.processes import is_stopped, processes_of, ranks_of
from localcloud.chaos.schedule import LASTING
from localcloud.errors import LocalCloudError, NotRunningError
from waiting import eventually


def ended(stage: Stage) -> tuple[list[str], int, tuple[str, ...]]:
    """End what lasts; return what was reported, how many were ended, and what could not be."""
    told: list[str] = []
    count, left = end_all(stage, lambda text, values: told.append(text))
    return told, count, left


@pytest.mark.root
def test_what_lasts_is_ended_without_the_process_that_began_it_and_nothing_else_is_found(tmp_path: Path) -> None:
    with started_host() as host:
        stage = Stage(tmp_path, host)
        for kind in LASTING - {"fill-disk", "api-errors"}:
            carried_out(stage, kind)
        stage.hosts()[0]["network"] = "cut"
        (tmp_path / FILLER).write_bytes(b"full")
        first, second = ranks_of(processes_of(host))
        eventually(lambda: is_stopped(first.pid))
        told, count, left = ended(stage)
        assert (count, left) == (5, ())
        assert told == [
            "undone: cut w1 (i-1) off",
            "undone: dropped what w1 (i-1) sends",
            "undone: slowed what w1 (i-1) sends",
            "undone: froze rank 0 on w1 (i-1)",
            "undone: filled the shared file system",
        ]
        assert stage.asked[1:] == [{"do": "mend", "instance": "i-1"}, {"do": "fail"}]
        assert TABLE not in inside(host, "nft", "list", "ruleset")
        assert "tbf" not in inside(host, "tc", "qdisc", "show")
        eventually(lambda: not is_stopped(first.pid))
        assert not is_stopped(second.pid)
        assert list(tmp_path.iterdir()) == []
        stage.hosts()[0]["network"] = "up"
        assert ended(stage) == ([], 0, ())


def test_what_cannot_be_ended_is_told_and_the_rest_is_ended(tmp_path: Path) -> None:
    stage = Stage(tmp_path, 0, 0)
    for host in stage.hosts():
        host["network"] = "cut"

    def ask(message: dict[str, str]) -> None:
        if message.get("instance") == "i-1":
            raise LocalCloudError("the daemon is busy")
        stage.asked.append(message)

    stage.ask = ask  # type: ignore[method-assign]
    assert ended(stage) == (
        ["not undone: cut w1 (i-1) off: the daemon is busy", "undone: cut w2 (i-2) off"],
        1,
        ("cut w1 (i-1) off",),
    )
    assert stage.asked == [{"do": "mend", "instance": "i-2"}, {"do": "fail"}]


def test_a_host_that_has_just_ended_is_passed_over_and_a_cloud_that_has_is_not(tmp_path: Path) -> None:
    assert ended(Stage(tmp_path, 2**22)) == ([], 0, ())
    stage = Stage(tmp_path, 0)
    stage.hosts()[0]["network"] = "cut"

    def ask(message: dict[str, Any]) -> None:
        raise NotRunningError("lc0")

    stage.ask = ask  # type: ignore[method-assign]
    with pytest.raises(NotRunningError):
        end_all(stage, lambda text, values: None)
