"""The start of a rank: its arguments and variables arrive unchanged, and no shell interprets them."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.hardware.placement import place, unbound_because
from agent.hardware.topology import read_topology
from agent.launch.rank import LOG_LEVEL, NOT_STARTED, environment, interface_of, this_host
from agent.remote.processes import parse_environment, parse_parent
from agent.spec.launchers import HOROVOD, PLAIN, TORCHRUN
from agent.spec.run import RunSpec
from tests.factories import make_node, make_program_spec, make_spec
from tests.waiting import eventually
from tests.words import LONG, NASTIEST

PROJECT = Path(__file__).resolve().parents[3]
LOCAL_PLACE = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
PROGRAM = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('NAME'), os.getcwd()]))"


@pytest.fixture(scope="module")
def efs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("efs")


def start(efs: Path, spec: RunSpec, *module: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Create a run with a program that prints its input, and become its rank."""
    run = efs / "runs" / spec.run_id
    (run / "work").mkdir(parents=True, exist_ok=True)
    (run / "work" / "train.py").write_text(PROGRAM)
    (run / "spec.json").write_text(spec.to_json())
    return subprocess.run(
        [sys.executable, "-m", "agent.launch.rank", str(run), *module],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("train.py", "--flag"), ["/py", "train.py", "--flag"]),
        (("-m", "package.train"), ["/py", "-m", "package.train"]),
        (("python3", "train.py"), ["/py", "train.py"]),
        (("./start.sh", "train.py"), ["./start.sh", "train.py"]),
    ],
)
def test_scripts_and_modules_run_with_python_of_rank(command: tuple[str, ...], expected: list[str]) -> None:
    assert make_program_spec(command=command).rank_command("/py") == expected


def test_variables_of_user_and_node_are_added_to_those_of_launcher() -> None:
    spec = make_program_spec(environment=(("NAME", "va lue"), ("NCCL_SOCKET_IFNAME", "theirs")))
    inherited = {"HOROVOD_RANK": "3", "HOROVOD_GLOO_IFACE": "ens5", "PATH": "/usr/bin"}
    found = environment(spec, inherited, "/layer/bin/python", "ens32")
    assert (found["NAME"], found["HOROVOD_RANK"], found["HOROVOD_GLOO_IFACE"]) == ("va lue", "3", "ens32")
    assert found["NCCL_SOCKET_IFNAME"] == "theirs"
    assert found["PATH"] == "/layer/bin:/usr/bin"


def test_tensorflow_logs_from_warnings_on_unless_the_user_or_the_login_sets_its_level() -> None:
    given = make_program_spec(environment=((LOG_LEVEL, "0"),))
    found = [environment(spec, {}, "/python", "")[LOG_LEVEL] for spec in (make_spec(), make_program_spec(), given)]
    assert found == ["1", "1", "0"]
    assert environment(make_spec(), {LOG_LEVEL: "2"}, "/python", "")[LOG_LEVEL] == "2"


@pytest.mark.parametrize("launcher", [HOROVOD, TORCHRUN, PLAIN])
def test_plain_sets_what_tensorflow_jax_and_keras_read(launcher: str) -> None:
    """Reported as tensorflow #39753: without TF_CONFIG, every rank of MultiWorkerMirroredStrategy trains alone."""
    spec = make_program_spec(hosts=(make_node(1), make_node(2)), rank_launcher=launcher)
    found = environment(spec, {"RANK": "1"}, "/python", "")
    if launcher != PLAIN:
        assert "TF_CONFIG" not in found
        return
    meeting = f"{spec.hosts[0].address}:29500"
    assert json.loads(found["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    assert (found["JAX_COORDINATOR_ADDRESS"], found["KERAS_DISTRIBUTION_JOB_ADDRESSES"]) == (meeting, meeting)
    assert (found["KERAS_DISTRIBUTION_NUM_PROCESSES"], found["KERAS_DISTRIBUTION_PROCESS_ID"]) == ("2", "1")
    given = make_program_spec(hosts=spec.hosts, rank_launcher=launcher, environment=(("TF_CONFIG", "{}"),))
    assert environment(given, {"RANK": "1"}, "/python", "")["TF_CONFIG"] == "{}"


@pytest.mark.parametrize(("kind", "expected"), [("x86_64-py3.11", "true"), ("x86_64-sm75", None)])
def test_accelerate_uses_cpus_on_nodes_without_gpus(kind: str, expected: str | None) -> None:
    """From accelerate's test script: on CPUs, each rank had DistributedType.NO under torchrun."""
    spec = make_program_spec(hosts=(make_node(1, kind=kind),), rank_launcher=TORCHRUN)
    assert environment(spec, {"RANK": "0"}, "/python", "").get("ACCELERATE_USE_CPU") == expected


def test_placeholders_are_expanded_only_in_entry(efs: Path) -> None:
    hosts = (make_node(1), make_node(2))
    command = ("train.py", "--rank={rank}", '{"rank": 1}', "${rank}", "{node_rank}/{num_nodes}", "{rank}")
    spec = make_program_spec(efs_mount=str(efs), hosts=hosts, command=command, entry_words=5, rank_launcher=PLAIN)
    names = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    done = start(efs, spec, **names, HOROVOD_HOSTNAME=hosts[1].name)
    assert json.loads(done.stdout)[0] == ["--rank=1", '{"rank": 1}', "${rank}", "1/2", "{rank}"], done.stderr


@pytest.mark.parametrize("launcher", [HOROVOD, PLAIN, TORCHRUN])
def test_ranks_know_the_names_of_all_nodes(efs: Path, launcher: str) -> None:
    hosts = (make_node(1), make_node(2))
    show = "import os; print(*(os.environ['DEEPCDK_' + name] for name in ('NODES', 'NODE', 'NODE_RANK')))"
    spec = make_program_spec(efs_mount=str(efs), hosts=hosts, command=("python", "-c", show), rank_launcher=launcher)
    done = start(efs, spec, HOROVOD_HOSTNAME=hosts[1].name)
    assert done.stdout == f"{hosts[0].name},{hosts[1].name} {hosts[1].name} 1\n", done.stderr


def test_pythonpath_starts_with_the_agent_or_the_program_hooks() -> None:
    tree = "/mnt/efs/payloads/aaaaaaaaaaaaaaaa"
    for spec, first in ((make_spec, tree), (make_program_spec, f"{tree}/agent/launch/program_hooks")):
        assert environment(spec(), {}, "/python", "")["PYTHONPATH"] == first
        given = spec(environment=(("PYTHONPATH", "/theirs"),))
        assert environment(given, {}, "/python", "")["PYTHONPATH"] == f"{first}:/theirs"


def test_node_finds_itself_among_the_hosts_by_its_address() -> None:
    here = make_node(2, address="127.0.0.1")
    spec = make_spec(hosts=(make_node(1), here))
    assert (this_host(spec), interface_of(spec, here.name)) in ((here, "lo"), (None, ""))  # with or without a loopback
    assert (this_host(make_spec()), interface_of(spec, "deeplearning-worker1")) == (None, "")


@settings(max_examples=4)
@given(arguments=st.lists(TEXT, max_size=4), value=TEXT)
def test_words_and_variables_arrive_unchanged(efs: Path, arguments: list[str], value: str) -> None:
    spec = make_program_spec(efs_mount=str(efs), command=("train.py", *arguments), environment=(("NAME", value),))
    done = start(efs, spec)
    assert json.loads(done.stdout) == [arguments, value, spec.working_directory], done.stderr


PLACE = "import os; print(os.environ.get('OMP_NUM_THREADS'), sorted(os.sched_getaffinity(0)))"


@pytest.mark.parametrize("launcher", [HOROVOD, PLAIN])
def test_program_rank_is_placed_and_rank_0_prints_placement(efs: Path, launcher: str) -> None:
    command = ("python", "-c", PLACE)
    spec = make_program_spec(efs_mount=str(efs), rank_launcher=launcher, command=command, together="no")
    names = ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE") if launcher == HOROVOD else LOCAL_PLACE
    for rank in ("0", "1"):
        done = start(efs, spec, **dict(zip(names, (rank, rank, "2"), strict=True)))
        topology = read_topology(Path("/"), os.sched_getaffinity(0))
        placement = place(topology, int(rank), 2)
        bound = not unbound_because(topology, 2)
        assert done.stdout == f"{placement.cores} {[*(placement.cpus if bound else topology.cpus)]}\n"
        said = f"[placement] {topology}: rank on CPUs "
        assert done.stderr.startswith(said) if rank == "0" else done.stderr == ""


@pytest.mark.parametrize("given", [{"placement": "none"}, {"environment": (("OMP_NUM_THREADS", "7"),)}])
def test_user_settings_win_and_no_placement_sets_nothing(efs: Path, given: dict[str, Any]) -> None:
    spec = make_program_spec(efs_mount=str(efs), command=("python", "-c", PLACE), **given)
    done = start(efs, spec, HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="2")
    assert done.stdout.split()[0] == ("None" if "placement" in given else "7"), done.stderr
    if "placement" in given:
        assert done.stdout == f"None {sorted(os.sched_getaffinity(0))}\n"


def test_program_that_cannot_be_started_is_reported_with_its_directory(efs: Path) -> None:
    done = start(efs, make_program_spec(efs_mount=str(efs), command=("./missing", "--flag")))
    assert done.returncode == NOT_STARTED
    assert "./missing in " in done.stderr
    assert "./missing: No such file" in done.stderr
    done = start(efs, make_program_spec(efs_mount=str(efs), command=("no-such-program",)))
    assert done.returncode == NOT_STARTED
    assert re.search(r"cannot start no-such-program in \S+: No such file .*; check the command in --entry", done.stderr)


def test_missing_directory_is_not_blamed_on_the_command(tmp_path: Path) -> None:
    done = start(tmp_path, make_program_spec(efs_mount=str(tmp_path / "missing")))
    assert done.returncode == NOT_STARTED
    assert re.search(r"cannot start \S+ in (\S+): \1: No such file or directory$", done.stderr.strip())


def test_module_replaces_the_program_without_its_variables(efs: Path) -> None:
    spec = make_program_spec(efs_mount=str(efs), environment=(("NAME", "value"),))
    run = efs / "runs" / spec.run_id
    run.mkdir(parents=True, exist_ok=True)
    (run / "spec.json").write_text(spec.to_json())
    show = "import json, os, sys; print(json.dumps([os.environ.get('NAME'), sys.argv[1:]]))"
    done = subprocess.run(
        [sys.executable, "-m", "agent.launch.rank", str(run), "-c", show, "word"],
        cwd=PROJECT, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == [None, ["word"]]


def test_special_arguments_arrive_unchanged_in_any_locale(efs: Path) -> None:
    spec = make_program_spec(efs_mount=str(efs), command=("train.py", *NASTIEST, LONG), environment=(("NAME", LONG),))
    done = start(efs, spec, LANG="C")
    assert json.loads(done.stdout)[:2] == [[*NASTIEST, LONG], LONG], done.stderr


@pytest.mark.parametrize("module", [(), ("-c", "print(open('/proc/self/status').read())")])
def test_rank_and_its_children_cannot_gain_privileges(efs: Path, module: tuple[str, ...]) -> None:
    show = "import subprocess; subprocess.run(['cat', '/proc/self/status'])"
    spec = make_program_spec(efs_mount=str(efs), command=("python", "-c", show))
    done = start(efs, spec, *module)
    assert "\nNoNewPrivs:\t1\n" in done.stdout, done.stderr


def test_run_without_a_spec_is_reported() -> None:
    command = [sys.executable, "-m", "agent.launch.rank", "/nowhere"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (done.returncode, "/nowhere/spec.json" in done.stderr) == (NOT_STARTED, True)


def test_rank_has_home_and_name_of_its_own_user(efs: Path) -> None:
    show = "import json, os; print(json.dumps([os.environ[name] for name in ('USER', 'LOGNAME')]))"
    spec = make_program_spec(efs_mount=str(efs), command=("python", "-c", show))
    user = pwd.getpwuid(os.getuid()).pw_name
    assert json.loads(start(efs, spec, USER="the-masters").stdout) == [user, user]


STARTER = """\
import os, sys
from agent.launch.rank import start_detached
started = start_detached(sys.argv[2:], directory=sys.argv[1], environ={"ONLY": "this"})
try:
    os.waitpid(-1, os.WNOHANG)
    children = "children"
except ChildProcessError:
    children = "no child"
print(started, children, os.getpid(), flush=True)
sys.stdin.read()
"""


def start_starter(*words: str, directory: Path) -> subprocess.Popen[str]:
    """Start a process that starts a detached one, prints its pid, and waits for the end of its input."""
    command = [sys.executable, "-c", STARTER, str(directory), *words]
    return subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_detached_process_is_not_a_child_of_its_starter_and_has_no_pipe(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with start_starter("/bin/sh", "-c", "echo $$ > pid; exec /bin/sleep 600", directory=tmp_path) as starter:
        assert starter.stdout is not None and starter.stdin is not None
        told = starter.stdout.readline().split()
        pid = int(eventually(lambda: pid_file.read_text() if pid_file.exists() else ""))
        try:
            assert told[:3] == ["True", "no", "child"]
            assert parse_parent(Path(f"/proc/{pid}/stat").read_text()) != int(told[3])
            assert os.getsid(pid) not in (os.getsid(0), os.getsid(int(told[3])))
            assert parse_environment(Path(f"/proc/{pid}/environ").read_bytes())["ONLY"] == "this"
            assert "HOME" not in parse_environment(Path(f"/proc/{pid}/environ").read_bytes())
            starter.stdin.close()
            assert starter.stdout.read() == "", "the end of the starter's output is seen while the other lives"
            assert starter.wait(timeout=60) == 0
            assert Path(f"/proc/{pid}").exists()
        finally:
            os.kill(pid, signal.SIGKILL)


def test_detached_process_that_cannot_be_started_is_reported(tmp_path: Path) -> None:
    with start_starter("/nowhere/program", directory=tmp_path) as starter:
        output, _ = starter.communicate("", timeout=60)
    assert output.startswith("False no child")
