"""Facts about what a node reports of frozen ranks: read where a rank can write, it is one of the rules or nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.runs import frozen_report
from agent.runs.directory import RunDirectory
from agent.runs.frozen_report import MOST_BYTES, FrozenNode, FrozenRank
from tests.factories import make_nodes

ONE, TWO = HOSTS = make_nodes(2, slots=2)
SEEN = FrozenRank(
    rank=3, pid=812, name="python3", state="T", since=1.8e9, seconds=10.2, threads=14, waits="14 in do_signal_stop"
)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(path=tmp_path)


def put(directory: RunDirectory, **changes: Any) -> Path:
    """Write a report of the second node whose only rank has these fields."""
    path = directory.path / f"frozen-1-{TWO.name}.json"
    path.write_text(json.dumps({"ranks": [{**SEEN.to_document(), **changes}]}))
    return path


def test_what_a_node_writes_is_read_back_and_said_in_words(directory: RunDirectory) -> None:
    frozen_report.write(directory, 1, TWO.name, [SEEN])
    assert frozen_report.read(directory, HOSTS) == [FrozenNode(node=TWO.name, ranks=(SEEN,))]
    assert str(SEEN) == "rank 3, process 812 (python3), 14 threads: 14 in do_signal_stop"


def test_the_nodes_come_in_their_order_and_the_ranks_in_theirs(directory: RunDirectory) -> None:
    ranks = [FrozenRank(**{**SEEN.to_document(), "rank": rank}) for rank in (1, None, 0)]
    frozen_report.write(directory, 1, TWO.name, [SEEN])
    frozen_report.write(directory, 1, ONE.name, ranks)
    found = frozen_report.read(directory, HOSTS)
    assert [(node.node, [each.rank for each in node.ranks]) for node in found] == [
        (ONE.name, [None, 0, 1]),
        (TWO.name, [3]),
    ]


def test_what_an_earlier_attempt_saw_is_no_evidence(directory: RunDirectory) -> None:
    frozen_report.write(directory, directory.attempt, TWO.name, [SEEN])
    (directory.path / "spec-1.json").touch()
    assert directory.attempt == 2
    assert frozen_report.read(directory, HOSTS) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 1},  # one of the other node's
        {"rank": 4}, {"rank": -1}, {"rank": True}, {"rank": "3"}, {"rank": 3.0}, {"rank": [3]},
        {"state": "D"}, {"state": None}, {"state": ["T"]},
        {"seconds": -1}, {"seconds": 1e300}, {"seconds": "10"}, {"seconds": True}, {"since": None},
        {"pid": 1.5}, {"threads": -1}, {"name": 1}, {"waits": None}, {"unknown": 1},
    ],
)  # fmt: skip
def test_what_breaks_a_rule_is_nothing(directory: RunDirectory, changes: dict[str, Any]) -> None:
    put(directory, **changes)
    assert frozen_report.read(directory, HOSTS) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ranks": 1}', '{"ranks": [1]}', '{"ranks": [{}]}', "[" * 10000])
def test_what_is_no_report_is_nothing(directory: RunDirectory, text: str) -> None:
    (directory.path / f"frozen-1-{TWO.name}.json").write_text(text)
    assert frozen_report.read(directory, HOSTS) == []


def test_nothing_is_read_through_a_link_or_from_a_pipe_or_a_giant(directory: RunDirectory, tmp_path: Path) -> None:
    path = put(directory)
    assert frozen_report.read(directory, HOSTS)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert frozen_report.read(directory, HOSTS) == []
    path.unlink()
    os.mkfifo(path)
    assert frozen_report.read(directory, HOSTS) == []
    path.unlink()
    path.mkdir()
    assert frozen_report.read(directory, HOSTS) == []
    path.rmdir()
    path.write_bytes((tmp_path / "elsewhere").read_bytes() + b" " * MOST_BYTES)
    assert frozen_report.read(directory, HOSTS) == []


def test_a_terminal_gets_no_control_from_a_name(directory: RunDirectory) -> None:
    put(directory, name="\x1b]0;x\x07", waits="a\nb")
    ((seen,),) = [node.ranks for node in frozen_report.read(directory, HOSTS)]
    assert str(seen).isprintable() and "\\x1b" in str(seen)
    assert all(text.isprintable() for text in seen.to_document().values() if isinstance(text, str))
