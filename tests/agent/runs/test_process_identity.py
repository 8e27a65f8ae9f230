"""The identity of a process: on a master that has replaced another one, even under that one's name and address."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.runs import process_identity
from agent.runs.process_identity import BOOTS, ProcessIdentity


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make this machine a node with a home of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(process_identity, "read_node_conf", lambda: {"instance_id": "i-0123456789abcdef0"})
    process_identity._note_boot.cache_clear()
    yield tmp_path
    process_identity._note_boot.cache_clear()


def test_a_process_that_lives_is_itself(home: Path) -> None:
    mine = ProcessIdentity.of(os.getpid())
    assert (mine.is_alive(), mine.end_cause) == (True, "")


def test_one_of_another_boot_of_this_disk_was_rebooted(home: Path) -> None:
    mine = ProcessIdentity.of(os.getpid())
    (home / BOOTS).write_text(f"before\n{mine.boot_id}\n")
    gone = dataclasses.replace(mine, boot_id="before")
    assert (gone.is_alive(), gone.end_cause) == (False, "the master was rebooted")


def test_one_of_a_boot_that_this_disk_does_not_know_was_on_another_master(home: Path) -> None:
    gone = dataclasses.replace(ProcessIdentity.of(os.getpid()), boot_id="another")
    process_identity._note_boot.cache_clear()
    (home / BOOTS).unlink()
    assert (gone.is_alive(), gone.end_cause) == (False, "the master was replaced")
    other = dataclasses.replace(gone, host="another")
    assert (other.is_alive(), other.end_cause) == (False, "the master was replaced")


def test_elsewhere_than_on_a_node_nothing_is_noted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_identity, "read_node_conf", dict)
    gone = dataclasses.replace(ProcessIdentity.of(os.getpid()), boot_id="another")
    assert gone.end_cause == "the master was rebooted"
    assert not (home / BOOTS).exists()
