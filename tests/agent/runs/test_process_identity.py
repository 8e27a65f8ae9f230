"""The identity of a process: on a master that has replaced another one, even under that one's name and address."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator

import pytest

from agent.runs import process_identity
from agent.runs.process_identity import ProcessIdentity


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this machine the node of an instance."""
    monkeypatch.setattr(process_identity, "read_node_conf", lambda: {"instance_id": "i-0123456789abcdef0"})
    process_identity._names.cache_clear()
    yield
    process_identity._names.cache_clear()


def test_a_process_on_a_node_is_known_by_the_instance(node: None) -> None:
    mine = ProcessIdentity.of(os.getpid())
    assert (mine.host, mine.is_alive(), mine.end_cause) == ("i-0123456789abcdef0", True, "")


def test_another_instance_under_the_same_name_is_another_master(node: None) -> None:
    gone = dataclasses.replace(ProcessIdentity.of(os.getpid()), host="i-0fedcba9876543210", boot_id="another")
    assert (gone.is_alive(), gone.end_cause) == (False, "the master was replaced")


def test_the_same_instance_with_another_boot_was_rebooted(node: None) -> None:
    gone = dataclasses.replace(ProcessIdentity.of(os.getpid()), boot_id="another")
    assert (gone.is_alive(), gone.end_cause) == (False, "the master was rebooted")


def test_a_process_of_an_earlier_version_is_known_by_the_name_of_the_host(node: None) -> None:
    mine = dataclasses.replace(ProcessIdentity.of(os.getpid()), host=socket.gethostname())
    assert (mine.is_alive(), mine.end_cause) == (True, "")
