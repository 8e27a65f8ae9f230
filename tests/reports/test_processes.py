"""Public reports about the processes of a run: output, limits, signals, leftovers, memory and waiting ranks."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.hardware.memory import Sample, read_sample
from agent.launch.out_of_memory import RECENT_S, SAMPLE_S, MemoryWatch
from agent.launch.process_tree import Process, RankTree, descendants, whom_to_ask
from agent.launch.rank import environment
from agent.launch.silent_rank import WaitWatch, cpu_s, waits_for
from agent.launch.ssh_launcher import Host, ProcessGroup
from agent.remote import rank_leftovers, rank_user
from agent.remote.fanout_stub import FLAGS, READY, SCRIPT, message
from agent.spec.launchers import LAUNCHERS, RANK_PARENT
from agent.spec.nodes import RANK_HOME
from agent.supervisor.failure import reason
from tests.factories import make_node, make_program_spec, make_spec
from tests.waiting import eventually

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_output_is_unbuffered_under_every_launcher(launcher: str) -> None:
    """Reported as skypilot PR 1290, pytorch PR #7226."""
    assert environment(make_program_spec(rank_launcher=launcher), {}, "/python", "")["PYTHONUNBUFFERED"] == "1"
    assert environment(make_spec(), {}, "/python", "")["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize("given", ["", "0", "2"])
def test_users_choice_of_buffering_is_kept(given: str) -> None:
    """Reported as skypilot PR 1290."""
    spec = make_program_spec(environment=(("PYTHONUNBUFFERED", given),))
    assert environment(spec, {}, "/python", "")["PYTHONUNBUFFERED"] == given


LIMITS = """\
import json, resource
print(json.dumps([resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]))
"""


def test_soft_limits_of_ranks_are_raised_to_the_hard_limits(tmp_path: Path) -> None:
    """Reported as verl #2047, pytorch #165532."""
    spec = make_program_spec(efs_mount=str(tmp_path), command=("python", "-c", LIMITS))
    run = tmp_path / "runs" / spec.run_id
    (run / "work").mkdir(parents=True)
    (run / "spec.json").write_text(spec.to_json())

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 3000))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 65536))

    words = [sys.executable, "-m", "agent.launch.rank", str(run)]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, preexec_fn=lower, check=True)
    assert json.loads(done.stdout) == [[3000, 3000], [65536, 65536]]


def test_temporary_files_of_ranks_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported as pip #12444, pullpreview PR #54."""
    monkeypatch.setattr(rank_user, "RANK_UID", os.getuid())
    monkeypatch.setattr(rank_user, "RANK_HOME", str(tmp_path))
    found = rank_user.make_temporary_directory()
    assert found == {"TMPDIR": str(tmp_path / "tmp")} and (tmp_path / "tmp").is_dir()
    assert environment(make_program_spec(), found, "/python", "")["TMPDIR"] == found["TMPDIR"]
    theirs = make_program_spec(environment=(("TMPDIR", "/mnt/scratch"),))
    assert environment(theirs, found, "/python", "")["TMPDIR"] == "/mnt/scratch"


def test_temporary_files_are_removed_before_the_next_run(tmp_path: Path) -> None:
    """Reported as pip #12444."""
    temporary = tmp_path / RANK_HOME.lstrip("/") / "tmp"
    temporary.mkdir(parents=True)
    (tmp_path / "proc/sysvipc").mkdir(parents=True)
    assert not rank_leftovers.files_are_there(tmp_path)
    (temporary / "pymp-1").mkdir()
    assert rank_leftovers.files_are_there(tmp_path)


SAVES = """\
import os, signal, subprocess, sys, time
def save(number, frame):
    time.sleep(0.5)
    print("caught", number)
    open("saved", "a").write("once ")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready")
while True:
    time.sleep(0.1)
"""
PLACE = {"RANK": "2", "HOROVOD_RANK": "2", **{f"OMPI_COMM_WORLD_{n}": "2" for n in ("RANK", "SIZE")}}
PLACE |= {f"OMPI_COMM_WORLD_LOCAL_{name}": "0" for name in ("RANK", "SIZE")}
PYTHON = f"{sys.executable} -u train.py"


def start_rank(folder: Path, launcher: str, *words: str) -> subprocess.Popen[bytes]:
    """Start the parent of a rank with SIGQUIT ignored, as in `nohup ... &`; its output is in the file `log`."""
    (folder / "train.py").write_text(SAVES)
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, *RANK_PARENT, launcher, *words],
            cwd=folder, env={**os.environ, **PLACE, "PYTHONPATH": str(PROJECT)}, stdout=log, stderr=log,
            preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_IGN) and None,
        )  # fmt: skip


@pytest.mark.parametrize(
    "entry",
    [
        f"exec {PYTHON}",
        f"{PYTHON}; echo done",
        f"{PYTHON} 2>&1 | tee copy; echo done",
        f"trap 'echo trapped' TERM; {PYTHON}",
        f"trap 'kill -TERM $child; wait' TERM; {PYTHON} & child=$!; wait",
        f"trap 'echo trapped' TERM; {PYTHON} & wait",
        f"trap '' HUP; (env -i {PYTHON} < /dev/null; echo done)",
        f"setsid --wait {PYTHON}; echo done",
        f'{sys.executable} -c \'import subprocess; subprocess.run(["sh", "-c", "{PYTHON}; echo done"])\'',
    ],
    ids=["exec", "script", "tee", "trap", "trap-kill", "trap-only", "env", "setsid", "wrapper"],
)
def test_stop_signal_reaches_program_once_below_any_wrapper(tmp_path: Path, entry: str) -> None:
    """Reported as wandb #3667, submitit #1677."""
    check_stop(tmp_path, "group", entry)


@pytest.mark.parametrize("launcher", ["gloo", "mpi"])
def test_stop_signal_reaches_program_under_each_launcher(tmp_path: Path, launcher: str) -> None:
    """Reported as wandb #3667, submitit #1677."""
    check_stop(tmp_path, launcher, f"{PYTHON} 2>&1 | tee copy; echo done")


def check_stop(tmp_path: Path, launcher: str, entry: str) -> None:
    rank, log = start_rank(tmp_path, launcher, "bash", "-c", entry), tmp_path / "log"
    try:
        eventually(lambda: "ready" in log.read_text())
        rank.terminate()
        rank.wait(30)
    finally:
        rank.kill()
    assert (tmp_path / "saved").read_text() == "once "
    assert "done" not in log.read_text(), "no later command of the script starts"
    assert "caught 15" in log.read_text()


def test_stop_signal_reaches_suspended_program(tmp_path: Path) -> None:
    """After SIGSTOP, as by a debugger or Ctrl-Z, SIGTERM waited for SIGCONT, and the grace period passed."""
    rank, log = start_rank(tmp_path, "group", *PYTHON.split()), tmp_path / "log"
    try:
        eventually(lambda: "ready" in log.read_text())
        (program,) = descendants(rank.pid)
        os.kill(program.pid, signal.SIGSTOP)
        rank.terminate()
        rank.wait(30)
    finally:
        rank.kill()
    assert (tmp_path / "saved").read_text() == "once "


def test_worker_processes_of_a_saving_program_get_no_signal() -> None:
    """Reported as submitit #1677. Forked workers inherit the handler and would all save."""
    shell = Process(pid=2, parent=1, name="bash")
    program = Process(pid=3, parent=2, name="python", catches=True)
    workers = [Process(pid=pid, parent=3, name="python", catches=True) for pid in (4, 5)]
    tee = Process(pid=6, parent=2, name="tee")
    assert whom_to_ask([shell, program, *workers, tee]) == ([program], [shell])
    assert whom_to_ask([shell, tee]) == ([shell, tee], [])


@pytest.mark.parametrize(
    ("launcher", "entry"),
    [
        ("gloo", "sleep 3600 & echo done"),
        ("mpi", "setsid sleep 3600 & echo done"),
        ("group", "(trap '' TERM HUP; exec sleep 3600) & echo done"),
        ("group", "env -i nohup sleep 3600 >/dev/null 2>&1 & echo done"),
        ("group", "(setsid sleep 3600 & exit) ; echo done"),
    ],
    ids=["output", "session", "stubborn", "quiet", "daemon"],
)
def test_rank_exits_with_its_main_process_and_lists_remaining_processes(
    tmp_path: Path, launcher: str, entry: str
) -> None:
    """Reported as skypilot #3803."""
    began = time.monotonic()
    rank, log = start_rank(tmp_path, launcher, "bash", "-c", f"{entry}; exit 3"), tmp_path / "log"
    assert rank.wait(30) == 3 and time.monotonic() - began < 12
    left = re.search(
        r"\[launcher\] rank 2: .* its remaining processes: (?:env -i )?(?:nohup )?sleep 3600 \(process (\d+)\)\n",
        log.read_text(),
    )
    assert left and not Path(f"/proc/{left[1]}").exists()


def test_child_that_exits_soon_is_no_leftover(tmp_path: Path) -> None:
    """Reported as skypilot #3803. A `tee` exits by itself."""
    rank = start_rank(tmp_path, "group", "bash", "-c", "(sleep 0.3; echo last) & exit 0")
    assert rank.wait(30) == 0
    assert (tmp_path / "log").read_text().splitlines() == ["[2]<stdout>:last", "[launcher] rank 2 ended: 0"]


STUBBORN = """\
import signal, sys, time
def save(number, frame):
    for step in range(2000):
        print("saving", step)
        time.sleep(0.001)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready")
while True:
    time.sleep(0.1)
"""
COUNTED = """\
import sys
from agent.launch import process_tree, rank_parent
scans, found = [], process_tree.descendants
process_tree.descendants = lambda root: scans.append(root) or found(root)
status = rank_parent.main(sys.argv[1:])
print("scans", len(scans))
sys.exit(status)
"""


def test_processes_are_not_scanned_while_program_saves(tmp_path: Path) -> None:
    """Each rank read all of /proc after every block of output."""
    (tmp_path / "save.py").write_text(STUBBORN)
    words = [sys.executable, "-c", COUNTED, "group", sys.executable, "-u", "save.py"]
    environ = {**os.environ, **PLACE, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, text=True) as rank:
        assert rank.stdout and rank.stdout.readline() == "[2]<stdout>:ready\n"
        rank.terminate()
        *lines, _, scans = rank.stdout.read().splitlines()
    assert len(lines) == 2000 and int(scans.removeprefix("scans ")) <= 5


UNKILLABLE = """\
import sys
from agent.launch import process_tree, rank_parent
process_tree.END_S, process_tree.STUCK_S, process_tree.send = 0.2, 0.5, lambda pids, *signals: None
sys.exit(rank_parent.main(sys.argv[1:]))
"""


def test_unkillable_process_does_not_block_the_rank(tmp_path: Path) -> None:
    """A process in state D, as with a server that hangs, kept the run live forever."""
    words = [sys.executable, "-c", UNKILLABLE, "group", "bash", "-c", "sleep 600 & exit 3"]
    environ = {**os.environ, **PLACE, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=30, check=False)
    stays = r"SIGKILL did not terminate these processes: sleep 600 \(process (\d+)\); do: .*`fab replace`"
    found = re.search(stays, done.stdout)
    assert found and done.returncode == 3
    os.kill(int(found[1]), signal.SIGKILL)


@pytest.mark.parametrize("launcher", ["gloo", "mpi", "group"])
def test_last_lines_of_a_killed_rank_are_kept(tmp_path: Path, launcher: str) -> None:
    """Reported as skypilot PR 1290, prime-rl PR #1019."""
    code = "import os\nfor step in range(21): print('step', step)\nos.kill(os.getpid(), 9)"
    start_rank(tmp_path, launcher, "env", "PYTHONUNBUFFERED=1", sys.executable, "-c", code).wait(30)
    assert [f"step {step}" in (tmp_path / "log").read_text() for step in range(21)] == [True] * 21


CGROUP = Path("/sys/fs/cgroup")
LEAK = """\
import time
blocks = []
for step in range(60):
    print("step", step)
    blocks.append(b"x" * 20_000_000)
    time.sleep(0.2)
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """Return the file that moves a process into a cgroup with 150 MB of memory."""
    version_1 = (CGROUP / "memory").is_dir()
    group = CGROUP / ("memory/deepcdk-test" if version_1 else "deepcdk-test") / str(os.getpid())
    try:
        group.parent.mkdir(exist_ok=True)
        group.mkdir()
        (group / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text("150000000")
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()
        group.parent.rmdir()


@pytest.mark.root
@pytest.mark.parametrize("entry", ["exec {}", "{}; exit $?"])
def test_out_of_memory_kill_is_reported_with_memory_size(tmp_path: Path, small_group: Path, entry: str) -> None:
    """Reported as microsoft/pai #1089."""
    (tmp_path / "leak.py").write_text(LEAK)
    code = entry.format(f"{sys.executable} -u leak.py")
    rank = start_rank(tmp_path, "group", "bash", "-c", f"echo $$ > {small_group}; {code}")
    assert rank.wait(60) in (-9, 137)
    said = (tmp_path / "log").read_text()
    used = re.search(
        r"\[launcher\] rank 2: out of memory: the kernel killed a process; the rank's largest process used (\d+) MiB",
        said,
    )
    assert used and 100 < int(used[1]) < 150 and "[2]<stdout>:step 4\n" in said


class Kills:
    """A root directory with memory cgroups of a rank and of other processes, and a watch over the rank."""

    def __init__(self, root: Path, *, version: int = 2, rank: str = "/user-60900.slice/session-3.scope") -> None:
        self.now, self.root, self._version, self._counts = 0.0, root, version, dict[str, int]()
        of = "0::" if version == 2 else "4:memory:"
        self._write("proc/meminfo", "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n")
        for pid, group in {"self": rank, "77": rank, "1": "/init.scope"}.items():
            self._write(f"proc/{pid}/cgroup", f"1:cpu:/\n{of}{group}\n")
        for group in ("/init.scope", "/system.slice/backup.service", rank):
            self.kill(group, 3)
        self.watch = MemoryWatch(77, root=root, clock=lambda: self.now)

    def _write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def kill(self, group: str, count: int = 1) -> None:
        """Count kills in a cgroup and on the whole node."""
        for name in ("", group):
            self._counts[name] = self._counts.get(name, 0) + count
        self._write("proc/vmstat", f"pgfault 5\noom_kill {self._counts['']}\n")
        if self._version:
            file = "memory.events" if self._version == 2 else "memory.oom_control"
            folder = f"sys/fs/cgroup/{'' if self._version == 2 else 'memory'}{group}"
            self._write(f"{folder}/{file}", f"oom 9\noom_kill {self._counts[group]}\n")


@pytest.mark.parametrize("version", [1, 2])
def test_out_of_memory_kill_elsewhere_is_not_attributed_to_rank(tmp_path: Path, version: int) -> None:
    """Reported as microsoft/pai #1089. The kernel kills another program, and then somebody kills the rank."""
    node = Kills(tmp_path, version=version)
    node.kill("/system.slice/backup.service")
    assert node.watch.describe(-9) == node.watch.describe(137) == ""
    node.kill("/user-60900.slice/session-3.scope")
    said = node.watch.describe(-9)
    assert said.startswith("out of memory: the kernel killed a process; the rank's largest process used ")
    assert node.watch.describe(1) == "", "enough memory was available"
    node.now = RECENT_S + 1
    assert node.watch.describe(-9) == "", "that was long ago"


def test_out_of_memory_kill_in_cgroup_of_program_is_attributed_to_rank(tmp_path: Path) -> None:
    """Reported as microsoft/pai #1089. The main process may have exited before the kill is counted."""
    node = Kills(tmp_path)
    (tmp_path / "proc/77/cgroup").write_text("0::/system.slice/backup.service\n")
    node.now += SAMPLE_S
    node.watch.look()
    assert node.watch.describe(-9) == ""
    node.kill("/system.slice/backup.service")
    (tmp_path / "proc/77/cgroup").unlink()
    assert node.watch.describe(-9).startswith("out of memory: ")


def test_out_of_memory_kill_of_shared_cgroup_may_be_another_program(tmp_path: Path) -> None:
    """Reported as microsoft/pai #1089. The rank's own cgroup has no counter, but the cgroup above it has one."""
    kills = Kills(tmp_path, rank="/user.slice/session-3.scope")
    for group in tmp_path.glob("sys/fs/cgroup/user.slice/session-3.scope/memory.events"):
        group.unlink()
    kills.kill("/user.slice")
    kills.now += SAMPLE_S
    kills.watch.look()
    kills.kill("/user.slice")
    assert kills.watch.describe(-9).startswith("perhaps out of memory: ")


@pytest.mark.parametrize("line", ["", "garbage", "0::", "0::/a\x0cb"])
def test_malformed_cgroup_line_does_not_stop_the_rank(tmp_path: Path, line: str) -> None:
    kills = Kills(tmp_path)
    (tmp_path / "proc/77/cgroup").write_text(f"{line}\n")
    kills.now += SAMPLE_S
    kills.watch.look()
    assert kills.watch.describe(-9) == ""


@pytest.mark.parametrize(
    "node", [{"version": 0}, {"rank": "/init.scope"}, {"rank": "/", "version": 1}], ids=["no-group", "shared", "root"]
)
def test_possible_out_of_memory_kill_is_reported_as_uncertain(tmp_path: Path, node: dict[str, Any]) -> None:
    """Reported as microsoft/pai #1089. Containers and small images have all processes in one cgroup."""
    kills = Kills(tmp_path, **node)
    kills.kill(str(node.get("rank", "/elsewhere")))
    said = kills.watch.describe(-9)
    assert said.startswith(
        "perhaps out of memory: the kernel killed a process on this node, perhaps not of this rank; "
        "the rank's largest process used "
    )
    spec = make_spec(hosts=(make_node(1, slots=2),))
    log = f"[launcher] rank 1: {said}\n[launcher] rank 1 exited first: -9\n"
    assert reason(spec, 1, log).startswith("rank 1 on deeplearning-worker1 perhaps ran out of memory: ")
    sure = f"{log}[1]<stderr>:[launcher] rank 0: out of memory: the kernel killed a process\n"
    assert reason(spec, 1, sure).startswith("rank 0 on deeplearning-worker1 ran out of memory: ")


def test_cgroup_limit_below_node_memory_is_reported(tmp_path: Path) -> None:
    """Reported as microsoft/pai #1089."""
    for name, text in {
        "proc/meminfo": "Node0\nMemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 800 kB\n",
        "proc/self/cgroup": "0::/user.slice/session.scope\n",
        "sys/fs/cgroup/user.slice/memory.max": "409600\n",
        "sys/fs/cgroup/user.slice/memory.current": "307200\n",
        "sys/fs/cgroup/user.slice/memory.stat": "anon 1000\ninactive_file 40960\nactive_file 20480\nshmem 7\n",
        "sys/fs/cgroup/user.slice/session.scope/memory.max": "max\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_sample(tmp_path) == Sample(available=163840, size=409600)
    assert read_sample(tmp_path / "none") == Sample(available=0, size=0)


def run_on_node(*command: str) -> tuple[subprocess.CompletedProcess[bytes], float]:
    """Run a command as `fab run` does on a node; return its result and its duration in seconds."""
    ours, theirs = os.pipe()
    os.write(theirs, message(command, {}))
    began = time.monotonic()
    words = [sys.executable, *FLAGS, "-c", SCRIPT]
    done = subprocess.run(words, stdin=ours, capture_output=True, timeout=20, check=False)
    os.close(theirs)
    os.close(ours)
    return done, time.monotonic() - began


@pytest.mark.parametrize("left", ["sleep 6 &", "setsid sleep 6 &", "(sleep 6 & exit);"])
def test_fab_run_returns_when_the_command_has_exited(left: str) -> None:
    """Reported as skypilot #3803."""
    done, seconds = run_on_node("sh", "-c", f"{left} echo done; echo wrong >&2; exit 3")
    assert (done.returncode, done.stdout) == (3, READY + b"done\n") and seconds < 5
    assert done.stderr.startswith(b"wrong\ndeepcdk: the command has exited; processes that it left in the background")


def test_fab_run_returns_while_a_background_process_keeps_writing() -> None:
    """Reported as skypilot #3803."""
    done, seconds = run_on_node("sh", "-c", "yes in the background & sleep 0.1; exit 3")
    assert done.returncode == 3 and seconds < 8
    assert b"deepcdk: the command has exited; processes that it left in the background" in done.stderr


def test_fab_run_does_not_stop_services_and_forwards_all_output() -> None:
    """Reported as skypilot #3803. A service with redirected output is not reported."""
    done, _ = run_on_node("sh", "-c", "sleep 6 >/dev/null 2>&1 & head -c 3000000 /dev/zero; echo $!")
    pid = int(done.stdout[len(READY) + 3_000_000 :])
    assert (done.returncode, done.stderr, Path(f"/proc/{pid}").exists()) == (0, b"", True)
    os.kill(pid, signal.SIGKILL)


TORCHRUN = """\
[1]<stderr>:Traceback (most recent call last):
[1]<stderr>:RuntimeError: Found no NVIDIA driver
[launcher] rank 1 ended: 1
E1127 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "torch/distributed/run.py", line 940, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
[0]<stderr>:ConnectionError: peer closed
"""


def test_traceback_of_torchrun_is_omitted(tmp_path: Path) -> None:
    """Reported with pytorch/examples `ddp-tutorial-series`."""
    pipe = subprocess.PIPE
    ssh = subprocess.Popen([sys.executable, "-c", f"print({TORCHRUN!r}, end='')"], stdin=pipe, stdout=pipe)
    spec = make_program_spec(hosts=(make_node(1, slots=2),), efs_mount=str(tmp_path))
    with (tmp_path / "log").open("wb") as log, ssh:
        assert ProcessGroup(spec=spec, hosts=(Host(node=spec.hosts[0], ssh=ssh),), out=log.fileno()).run() == 1
    lines = TORCHRUN.splitlines()
    first = "[launcher] rank 1 exited first: 1"
    assert (tmp_path / "log").read_text().splitlines() == [*lines[:2], lines[-1], first]
    why = "rank 1 on deeplearning-worker1 exited first, with status 1: RuntimeError: Found no NVIDIA driver"
    assert reason(spec, 1, (tmp_path / "log").read_text()) == why


def test_rank_waiting_without_output_is_reported_with_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported as horovod #1374, pytorch-lightning PR #19448."""
    now, meeting = 0.0, ("127.0.0.1", 29500)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket\ns = socket.create_connection(('127.0.0.1', {port}))\ns.recv(1)"
        with subprocess.Popen([sys.executable, "-c", code]) as process:
            other, _ = server.accept()
            found = [Process(pid=process.pid, parent=1, name="python"), Process(pid=os.getpid(), parent=1, name="sh")]
            monkeypatch.setattr(RankTree, "find", lambda self: found[:1])
            watch = WaitWatch(RankTree.__new__(RankTree), meeting, clock=lambda: now)
            told = []
            for now in range(0, 500, 10):  # the clock returns it
                if text := watch.look():
                    told.append((now, text))
            assert [when for when, _ in told] == [120, 240, 480]
            assert told[0][1].startswith("no output and no CPU time for 2 min. ")
            assert f"connected to 127.0.0.1:{port}" in told[0][1]
            watch.take_output()
            assert watch.look() == ""
            other.close()
    text = waits_for(os.getpid(), ("127.0.0.1", 1))
    assert "not even to rank 0" in text or "connected" in text


def test_rank_computing_without_output_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported as horovod #1374."""
    now = 0.0
    monkeypatch.setattr(RankTree, "find", lambda self: [])
    monkeypatch.setattr("agent.launch.silent_rank.cpu_s", lambda found: 0.1 * now)
    watch = WaitWatch(RankTree.__new__(RankTree), ("", 1), clock=lambda: now)
    for now in range(0, 500, 10):  # noqa: B007  # read by the clock
        assert watch.look() == ""


def test_cpu_time_of_children_that_have_exited_counts() -> None:
    """Reported as horovod #1374. A rank may compute in many short-lived processes."""
    pipe, busy = subprocess.PIPE, f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.5: pass'"
    with subprocess.Popen(["bash", "-c", f"{busy}; echo; read"], stdin=pipe, stdout=pipe, text=True) as shell:
        found, before_s = [Process(pid=shell.pid, parent=1, name="bash")], sum(os.times()[2:4])
        assert shell.stdout and shell.stdout.readline()
        assert cpu_s(found) - before_s > 0.2
        shell.communicate()


@pytest.mark.parametrize("mark", ["", "[1]<stderr>:"])
def test_program_killing_all_processes_of_its_user_is_no_node_failure(mark: str) -> None:
    """A cleanup by `kill -1` also kills sshd's process for the ranks."""
    spec = make_spec(hosts=(make_node(1), make_node(2)))
    closed = f"{mark}Connection to deeplearning-worker2 closed by remote host.\r\n"
    log = f"{closed}[launcher] deeplearning-worker2 ended: 255\n"
    killed = reason(spec, 1, log, running=["deeplearning-worker1", "deeplearning-worker2"])
    assert killed.startswith("all processes of the ranks on deeplearning-worker2 were killed") and "kill -1" in killed
    assert "replace" not in killed
    assert "no longer responds" in reason(spec, 1, log, running=["deeplearning-worker1"])
