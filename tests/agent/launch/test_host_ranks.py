"""The processes that a host starts: one per slot, or torchrun with as many processes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agent.launch.host_ranks import HostRanks, host_commands, start
from agent.runs.run_directory import RunDirectory
from agent.spec.run import RunSpec
from tests.factories import make_nodes, make_program_spec

HOSTS = make_nodes(2, slots=2)


def test_plain_launcher_starts_one_process_per_slot() -> None:
    spec = make_program_spec(hosts=HOSTS, rank_launcher="plain")
    found = host_commands("/py", spec, 1)
    assert [(place["RANK"], place["LOCAL_RANK"]) for _, place in found] == [("2", "0"), ("3", "1")]
    rank = ["/py", "-m", "agent.launch.rank", spec.run_directory]
    assert {tuple(words) for words, _ in found} == {("/py", "-m", "agent.launch.rank_parent", "group", *rank)}


def test_torchrun_starts_one_process_per_slot_and_meets_on_first_host() -> None:
    spec = make_program_spec(hosts=HOSTS, rank_launcher="torchrun")
    ((words, variables),) = host_commands("/py", spec, 1)
    flags = dict(zip(words[3:15:2], words[4:15:2], strict=True))
    assert words[:3] == ["/py", "-m", "torch.distributed.run"]
    assert flags == {
        "--nnodes": "2", "--node-rank": "1", "--nproc-per-node": "2", "--max-restarts": "0",
        "--master-addr": "10.0.1.1", "--master-port": "29500",
    }  # fmt: skip
    assert words[15:] == [
        "--no-python",
        *host_commands("/py", make_program_spec(hosts=HOSTS, rank_launcher="plain"), 1)[0][0],
    ]
    assert variables == {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300"}


def test_preflight_allreduce_starts_identically_with_plain_and_torchrun() -> None:
    module = ("-m", "agent.preflight.allreduce", "/run", "torch")
    found = [
        host_commands("/py", make_program_spec(hosts=HOSTS, rank_launcher=name), 0, module)
        for name in ("plain", "torchrun")
    ]
    assert found[0] == found[1]
    assert found[0][0][0][-4:] == list(module)


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunSpec:
    """Return the spec of a run with a separate directory and a launcher that keeps running."""
    monkeypatch.setattr(HostRanks, "_read_input", lambda self: None)
    made = make_program_spec(hosts=HOSTS, rank_launcher="plain", efs_mount=str(tmp_path))
    Path(made.run_directory).mkdir(parents=True)
    return made


def started(*scripts: str) -> Sequence[subprocess.Popen[bytes]]:
    return [start(["sh", "-c", script], {}) for script in scripts]


def test_killed_process_stops_the_others_immediately(spec: RunSpec) -> None:
    killed, other = started("kill -KILL $$", "exec sleep 600")
    assert HostRanks(spec, [killed, other]).wait() == 1
    assert (killed.returncode, other.returncode) == (-9, -15)


def test_other_processes_keep_grace_time_while_run_is_stopped(spec: RunSpec) -> None:
    RunDirectory(path=Path(spec.run_directory)).stop_request.touch()
    first, second = started("exit 1", "sleep 0.5; exit 0")
    assert HostRanks(spec, [first, second]).wait() == 1
    assert second.returncode == 0, "it was not ended"
