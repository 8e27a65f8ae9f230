"""Ranks over Open MPI on the deployed cluster: they connect, their lines stay whole, and they end as with Gloo."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tests.waiting import eventually

LINES = 300
PROGRAM = f"""\
import json, os, signal, sys
import tensorflow as tf
import horovod.tensorflow as hvd

hvd.init()
for number in range({LINES}):
    print(number, "x" * (number % 97), "end", file=sys.stderr if number % 2 else sys.stdout, flush=True)
total = hvd.allreduce(tf.constant([hvd.rank() + 1.0]), op=hvd.Sum)
step = tf.function(lambda: hvd.allreduce(tf.constant(1.0)))
assert [float(step()) for _ in range(30)] == [1.0] * 30
places = [os.environ["HOROVOD_" + name] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "HOSTNAME")]
own = [hvd.rank(), hvd.size(), float(total[0]), hvd.mpi_enabled(), sys.argv[1:]]
print("told", json.dumps([*places, *own]), flush=True)
if hvd.rank() == 1 and "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
hvd.allreduce(total, name="last")
"""
SPAWN = """\
import base64, ctypes, glob, os, pathlib, signal, sys, time
import horovod

MARK = "/tmp/of-a-rank"
ROUTES = {
    "seq": {"map_by": "seq", "host": "deeplearning-master"},
    "hostfile": {"map_by": "seq", "hostfile": "hosts"},
}

def spawn(route, rank):
    mpi = ctypes.CDLL(str(pathlib.Path(horovod.__file__).parents[3] / "libmpi.so.40"), mode=ctypes.RTLD_GLOBAL)
    alone = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_self")))
    info, spawned = ctypes.c_void_p(), ctypes.c_void_p()
    mpi.MPI_Init(None, None)  # It waits for all ranks.
    if rank:
        return
    pathlib.Path("hosts").write_text("deeplearning-master slots=1\\n")
    mpi.MPI_Info_create(ctypes.byref(info))
    for name, value in ROUTES[route].items():
        mpi.MPI_Info_set(info, name.encode(), value.encode())
    words = (ctypes.c_char_p * 3)(b"-c", f"id -un >> {MARK}".encode(), None)
    mpi.MPI_Comm_spawn(b"/bin/sh", words, 1, info, 0, alone, ctypes.byref(spawned), None)

def ask(own):
    command = base64.b64encode(f"id -un >> {MARK}".encode()).decode()
    option = f"-oProxyCommand=id>>{MARK}"
    hosts = ["deeplearning-master", "localhost", "127.0.0.1", option, "ec2-user@deeplearning-master", own]
    lines = [f"[launcher] start {host} {command}" for host in hosts]
    lines.append(f"[launcher] start deeplearning-worker2 {base64.b64encode(option.encode()).decode()}")
    lines.append("[launcher] start deeplearning-master " + "A" * 300_000)
    for path in glob.glob("/proc/[0-9]*/fd/1"):
        try:
            with open(path, "w") as out:
                out.write("\\n".join(["", *lines, ""]))
        except OSError:
            pass

signal.alarm(30)
route, rank = sys.argv[1], int(os.environ["HOROVOD_RANK"])
if not rank:
    print("tries", route, flush=True)
if route != "ask":
    spawn(route, rank)
elif not rank:
    ask(os.environ["HOROVOD_HOSTNAME"])
time.sleep(10)
"""
WORDS = ("two words", "$(touch /tmp/evaluated)", "line\ntwo", "ü")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("program")
    (root / "train.py").write_text(PROGRAM)
    (root / "spawn.py").write_text(SPAWN)
    return root


def train(
    cloud: EmbeddedCloud, program: Path, *words: str, flags: Sequence[str] = (), script: str = "train.py"
) -> tuple[int, dict[str, Any], str]:
    """Train with one rank per core; return fab's status, the run's record and its log."""
    entry = ["--payload", str(program), "--entry", script, "--ranks-per-node", "cores", "--controller", "mpi"]
    given = ["--nodes", "2", "--yes", *flags, *demo.settings(2)]
    done = cloud.laptop("fab", "train", *given, *entry, "--", *words, check=False)
    record: dict[str, Any] = json.loads(cloud.fab("show", "--json").stdout)
    return done.returncode, record, cloud.fab("logs", "--run", record["run_id"]).stdout


@pytest.fixture(scope="module")
def met(cluster: EmbeddedCloud, program: Path) -> tuple[int, dict[str, Any], str]:
    return train(cluster, program, *WORDS)


def test_ranks_of_all_hosts_connect_and_print_complete_lines(
    cluster: EmbeddedCloud, met: tuple[int, dict[str, Any], str]
) -> None:
    status, record, log = met
    assert (status, record["state"]["state"]) == (0, "succeeded"), log[-3000:]
    hosts = [host["name"] for host in record["spec"]["hosts"] for _ in range(host["slots"])]
    told = [json.loads(text) for text in re.findall(r"^\[\d+\]<stdout>:told (.*)$", log, re.MULTILINE)]
    slots = record["spec"]["hosts"][0]["slots"]
    assert sorted(told) == [
        [
            str(n),
            str(len(hosts)),
            str(n % slots),
            str(slots),
            host,
            n,
            len(hosts),
            sum(range(len(hosts) + 1)),
            True,
            [*WORDS],
        ]
        for n, host in enumerate(hosts)
    ]
    whole = re.findall(r"^\[(\d+)\]<(stdout|stderr)>:(\d+) (x*) end$", log, re.MULTILINE)
    assert Counter(rank for rank, *_ in whole) == {str(rank): LINES for rank in range(len(hosts))}
    assert all(
        int(number) % 97 == len(text) and (int(number) % 2 == 1) == (stream == "stderr")
        for _, stream, number, text in whole
    )
    assert "--mpi" in record["launch"]["command"]
    for node in cluster.instances("worker"):
        assert cluster.on(node["InstanceId"], "ls", "/tmp/evaluated", check=False).returncode != 0


def test_killed_rank_stops_the_others_and_is_reported(cluster: EmbeddedCloud, program: Path) -> None:
    flags = ["--skip-preflight", "--restarts", "0"]
    status, record, log = train(cluster, program, "die", flags=flags)
    assert (status, record["state"]["state"]) == (1, "failed"), log[-3000:]
    assert (record["spec"]["controller"], len(record["spec"]["hosts"])) == ("mpi", 2)
    host = [host["name"] for host in record["spec"]["hosts"] for _ in range(host["slots"])][1]
    assert record["state"]["reason"] == f"rank 1 on {host} exited first, with signal 9 (Killed)"
    for node in cluster.instances("worker"):
        left = cluster.on(node["InstanceId"], "pgrep", "-f", "train.py|orted|rank_parent", check=False)
        assert left.stdout == "", left.stdout


def test_stopped_recipe_writes_a_checkpoint(cluster: EmbeddedCloud) -> None:
    words = ["--nodes", "2", "--epochs", "5000", "--controller", "mpi"]
    quickly = ["--skip-preflight", "--yes", "--detach", "--", "--checkpoint-epochs", "1"]
    found = re.search(r"run (\S+): \d+ ranks", cluster.fab("train", *words, *quickly).stdout)
    assert found is not None
    run, stored = found[1], cluster.run(found[1])
    eventually(lambda: stored.checkpoints)
    cluster.fab("stop", "--run", run)
    stopped = json.loads(cluster.fab("show", "--run", run, "--json").stdout)
    assert (stopped["state"]["state"], stopped["spec"]["controller"]) == ("stopped", "mpi")
    assert "the grace period is over" not in cluster.fab("logs", "--run", run).stdout


@pytest.mark.parametrize("route", ["seq", "hostfile", "ask"])
def test_no_rank_runs_a_command_on_the_master(cluster: EmbeddedCloud, program: Path, route: str) -> None:
    flags = ["--skip-preflight", "--restarts", "0"]
    _, _, log = train(cluster, program, route, flags=flags, script="spawn.py")
    (master,) = cluster.instances("master")
    made = cluster.on(master["InstanceId"], "cat", "/tmp/of-a-rank", check=False)
    assert (made.returncode, made.stdout) == (1, ""), log[-3000:]
    assert f"[0]<stdout>:tries {route}" in log, log[-3000:]
