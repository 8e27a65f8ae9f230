"""Which nodes accept the master's logins, checked by the real command with a stand-in for SSH."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.spec.nodes import Node, workers
from cluster.nodes.logins import Logins, login_command, parse_logins
from cluster.ssh.master import Completed, Master
from tests.factories import make_nodes

SSH = """#!/bin/sh
echo "$*" >>asked
[ ! -e "rejects/$*" ] || { echo 'Warning: added' >&2; echo 'Permission denied (publickey).' >&2; exit 255; }
"""
RANK = "-n -l deepcdk-rank"


class LocalMaster(Master):
    """Run the master's commands here, in a folder with a stand-in for the agent's `ssh`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ssh = folder / "agent/bin/ssh"
        ssh.parent.mkdir(parents=True)
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        (folder / "rejects").mkdir()

    def check(self, argv: Sequence[str], *, directory: str = "", stdin: bytes = b"", doing: str) -> Completed:
        done = subprocess.run(argv, cwd=self.folder / directory, input=stdin, capture_output=True, check=True)
        return Completed(status=0, stdout=done.stdout, stderr=done.stderr.decode())

    def reject(self, words: str) -> Path:
        """Reject the login with these arguments, until the returned file is removed."""
        file = self.folder / "rejects" / words
        file.touch()
        return file

    def asked(self) -> list[str]:
        """Return the logins since the last call, sorted."""
        file = self.folder / "asked"
        lines = sorted(file.read_text().splitlines()) if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def master(tmp_path: Path) -> LocalMaster:
    return LocalMaster(tmp_path)


def names(nodes: Sequence[Node]) -> list[str]:
    return [node.name.removeprefix("deeplearning-") for node in nodes]


def test_worker_is_ready_after_logins_of_both_users(master: LocalMaster) -> None:
    logins, nodes = Logins("."), make_nodes(3)
    late = master.reject(f"{RANK} deeplearning-worker2 true")
    assert names(workers(logins.ready(master, nodes))) == ["worker1", "worker3"]
    assert logins.refused == {"deeplearning-worker2": "Permission denied (publickey)."}
    both = [f"{user} deeplearning-worker{index} true" for user in ("-n", RANK) for index in (1, 2, 3)]
    assert master.asked() == sorted(both)
    late.unlink()
    assert logins.ready(master, nodes) == nodes
    assert logins.refused == {}
    assert master.asked() == ["-n -l deepcdk-rank deeplearning-worker2 true", "-n deeplearning-worker2 true"]
    assert logins.ready(master, nodes) == nodes
    assert master.asked() == []


def test_new_instance_with_same_name_is_checked_again(master: LocalMaster) -> None:
    logins, nodes = Logins("."), make_nodes(1)
    logins.ready(master, nodes)
    master.reject("-n deeplearning-worker1 true")
    other = make_nodes(1, instance_id="i-0123456789abcdef0")
    assert workers(logins.ready(master, other)) == ()


def test_missing_answer_is_a_failed_login() -> None:
    text = "deeplearning-worker1\nHello!\ndeeplearning-worker9\n"
    assert parse_logins(text, ["deeplearning-worker1", "deeplearning-worker2"]) == {
        "deeplearning-worker1": "",
        "deeplearning-worker2": "no answer",
    }


def test_login_without_a_message_has_its_status(master: LocalMaster) -> None:
    (master.folder / "agent/bin/ssh").write_text("#!/bin/sh\nexit 7\n")
    done = master.check(login_command(), stdin=b"deeplearning-worker1\n", doing="")
    assert parse_logins(done.text, ["deeplearning-worker1"]) == {"deeplearning-worker1": "status 7"}


def test_login_that_takes_too_long_is_reported_as_unanswered(master: LocalMaster) -> None:
    (master.folder / "agent/bin/ssh").write_text("#!/bin/sh\nexit 124\n")  # the status of `timeout`
    done = master.check(login_command(), stdin=b"deeplearning-worker1\n", doing="")
    assert parse_logins(done.text, ["deeplearning-worker1"]) == {"deeplearning-worker1": "no answer within 20 s"}
