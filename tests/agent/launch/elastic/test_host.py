from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.elastic import host
from agent.launch.elastic.host import variables
from agent.launch.rank_states import parse_rank
from tests.factories import make_spec


def test_a_rank_is_told_its_number_and_its_place_on_the_host() -> None:
    found = variables("deeplearning-worker2", 4, 2, 1, "ens5")
    assert found == {
        "RANK": "5",
        "DEEPCDK_MEMBER": "5",
        "HOROVOD_HOSTNAME": "deeplearning-worker2",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_GLOO_IFACE": "ens5",
    }
    assert "HOROVOD_GLOO_IFACE" not in variables("deeplearning-worker2", 4, 2, 1, "")


def test_what_starts_a_rank_is_not_taken_for_it() -> None:
    assert parse_rank(variables("deeplearning-worker2", 4, 2, 1, "ens5")) == (5, False)


def test_ranks_whose_launcher_has_lost_their_host_end_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By SIGTERM a recipe's rank would have all others stop with it.
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    asked: list[int] = []

    def signal_run(*words: object, number: int, **others: object) -> None:
        asked.append(number)
        rank.send_signal(number)

    monkeypatch.setattr(host, "signal_run", signal_run)
    reader, writer = os.pipe()
    os.close(writer)  # as the kernel does where the connection is gone
    monkeypatch.setattr(sys, "stdin", os.fdopen(reader))
    assert host.ElasticHostRanks(make_spec(efs_mount=str(tmp_path)), [rank]).wait() == 1
    assert (asked, rank.returncode) == ([signal.SIGKILL], -signal.SIGKILL)
