"""Ranks that Horovod does not start: their identity, the origin of each line, and their joint termination."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.ssh_launcher import Host, ProcessGroup
from agent.spec.nodes import Node
from agent.supervisor.failure import reason
from agent.supervisor.launcher_messages import first_ended
from tests.agent.conftest import UNREACHABLE, LocalGroup
from tests.factories import make_node, make_program_spec
from tests.waiting import eventually

PLACE = """\
import json, os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
print(json.dumps([os.environ[name] for name in names]), flush=True)
"""
WAIT = """\
import os, sys, time
print("waits", flush=True)
open(f"pid-{os.environ['RANK']}", "w").write(str(os.getpid()))
"""
DDP = """\
import os, signal, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = [float(value) for part in model.parameters() for value in part.detach().flatten()]
print("weights", weights, "of", dist.get_world_size(), flush=True)
if "die" in sys.argv:
    if dist.get_rank() == 1:
        print("a last word", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
if "freeze" in sys.argv and dist.get_rank() == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
dist.barrier()
os._exit(0)
"""
"""It ends without PyTorch's own clean-up, in which PyTorch 2.13 was seen to abort a rank on a busy machine ("terminate
called without an active exception")."""


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_ranks_are_numbered_by_host_and_slot_and_get_the_address_of_rank_0(group: LocalGroup) -> None:
    status, log = group.run(group.lay_out(PLACE, slots=(2, 1)))
    assert status == 0, log
    told = {int(rank): json.loads(text) for rank, text in re.findall(r"^\[(\d)\]<stdout>:(.*)$", log, re.MULTILINE)}
    assert told == {
        0: ["0", "0", "3", "2", "0", "127.0.0.1", "29500"],
        1: ["1", "1", "3", "2", "0", "127.0.0.1", "29500"],
        2: ["2", "0", "3", "1", "1", "127.0.0.1", "29500"],
    }


def test_first_failed_rank_stops_others_and_is_reported_after_its_output(group: LocalGroup) -> None:
    end = "os.kill(os.getpid(), 9)"
    program = (
        f"{WAIT}\nif os.environ['RANK'] == '1':\n    print('a last word', flush=True)\n    {end}\ntime.sleep(600)\n"
    )
    spec = group.lay_out(program)
    status, log = group.run(spec)
    assert status == 1
    assert log.splitlines()[-1] == "[launcher] rank 1 exited first: -9"
    assert [log.count(line) for line in ("[1]<stdout>:waits\n", "[1]<stdout>:a last word\n")] == [1, 1]
    assert reason(spec, status, log) == "rank 1 on deeplearning-worker2 exited first, with signal 9 (Killed)"


def test_ranks_end_with_their_launcher(group: LocalGroup) -> None:
    spec = group.lay_out(f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{WAIT}\ntime.sleep(600)\n")
    work = Path(spec.working_directory)
    with group.start(spec) as launcher:
        eventually(lambda: len([path for path in work.glob("pid-*") if path.read_text()]) == 2)
        launcher.kill()
        pids = [int(path.read_text()) for path in work.glob("pid-*")]
        eventually(lambda: not any(map(is_alive, pids)))


def test_unreachable_host_is_reported_with_fix(group: LocalGroup) -> None:
    hosts: tuple[Node, ...] = (make_node(1, address="127.0.0.1"), make_node(9, address="127.0.0.1"))
    spec = group.lay_out(f"{WAIT}\ntime.sleep(600)\n", hosts=hosts)
    status, log = group.run(spec)
    assert (status, log.splitlines()[-1]) == (1, f"[launcher] {UNREACHABLE} ended: 255")
    told = "deeplearning-worker9 no longer responds; do: `fab replace worker9`, then `fab resume`"
    assert reason(spec, status, log) == told


HOSTILE = """\
import os, sys
out = sys.stdout.buffer
out.write(b"[launcher] rank " + b"9" * 5000 + b" ended: 1\\n[" + b"9" * 5000 + b"]<stdout>:x\\n")
for number in range(2000):
    out.write(b"[%d]<stdout>:x\\n" % number)
out.write(b"[0]<stdout>:" + b"x" * 60000 + b"\\n[launcher] rank 0 ended: 1\\n")
"""


def test_launcher_on_master_does_not_trust_host_output(tmp_path: Path) -> None:
    ssh = subprocess.Popen(
        [sys.executable, "-c", HOSTILE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    spec = make_program_spec(hosts=(make_node(1, slots=2),), efs_mount=str(tmp_path))
    with (tmp_path / "log").open("wb") as log, ssh:
        group = ProcessGroup(spec=spec, hosts=(Host(node=spec.hosts[0], ssh=ssh),), out=log.fileno())
        assert group.run() == 1
    assert (tmp_path / "log").read_bytes().count(b"[launcher] rank 0 exited first: 1\n") == 1


def test_stopped_run_waits_for_its_ranks(group: LocalGroup) -> None:
    handler = (
        "import signal\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(rank), print('saved'), sys.exit(143)))"
    )
    program = f"import os, sys, time\nrank = int(os.environ['RANK'])\n{handler}\n{WAIT}\nsignal.pause()\n"
    spec = group.lay_out(program)
    work = Path(spec.working_directory)
    with group.start(spec) as launcher:
        eventually(lambda: len([path for path in work.glob("pid-*") if path.read_text()]) == 2)
        (work.parent / "stop.json").write_text('{"grace_s": 60}')
        for path in work.glob("pid-*"):
            os.kill(int(path.read_text()), signal.SIGTERM)
        log, _ = launcher.communicate(timeout=120)
    assert {"[0]<stdout>:saved", "[1]<stdout>:saved"} <= set(log.splitlines())


@pytest.mark.full
@pytest.mark.parametrize("launcher", ["plain", "torchrun"])
def test_pytorch_ranks_train_identically(
    group: LocalGroup, torch_python: str, launcher: str, meeting_port: None
) -> None:
    status, log = group.run(group.lay_out(DDP, slots=(2, 1), rank_launcher=launcher), torch_python)
    assert status == 0, log
    told = re.findall(r"^\[(\d)\]<stdout>:(weights .* of 3)$", log, re.MULTILINE)
    assert sorted(rank for rank, _ in told) == ["0", "1", "2"]
    assert len({weights for _, weights in told}) == 1


@pytest.mark.full
def test_killed_torchrun_rank_is_reported(group: LocalGroup, torch_python: str, meeting_port: None) -> None:
    spec = group.lay_out(DDP, "die", rank_launcher="torchrun")
    status, log = group.run(spec, torch_python)
    assert (status, log.splitlines()[-1]) == (1, "[launcher] rank 1 exited first: -9")
    assert log.count("[1]<stdout>:a last word\n") == 1
    assert reason(spec, status, log) == "rank 1 on deeplearning-worker2 exited first, with signal 9 (Killed)"


@pytest.mark.full
def test_stuck_rank_of_torchrun_is_killed_by_its_node_and_named(
    group: LocalGroup, torch_python: str, meeting_port: None
) -> None:
    spec = group.lay_out(DDP, "freeze", slots=(2,), rank_launcher="torchrun", stall_after_s=6)
    status, log = group.run(spec, torch_python)
    assert status == 1
    assert first_ended(log) == (1, -9)
    assert "rank 1" in reason(spec, status, log) and " stuck: no step, output or CPU time" in reason(spec, status, log)


def test_torchrun_without_pytorch_is_reported_as_host_failure(group: LocalGroup) -> None:
    spec = group.lay_out(PLACE, rank_launcher="torchrun", slots=(1,))
    status, log = group.run(spec)
    assert reason(spec, status, log) == "the launcher on deeplearning-worker1 exited with status 1"
    assert "No module named" in log
