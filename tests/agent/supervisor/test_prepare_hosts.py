"""The preparation of a run: hosts that fail are reported, and each run works in its own copy of the program."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent.errors import SpecError
from agent.launch.run_hosts import MASTER, Hosts
from agent.remote.ssh import Completed, execute
from agent.runs import liveness
from agent.runs.node_claims import Runs
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import RunSpec
from agent.supervisor import prepare_hosts, prepare_node
from agent.supervisor.prepare_hosts import PreparationError, failures, interpreters, prepare, stage
from agent.supervisor.supervisor import Supervisor
from tests.agent.supervisor.live_runs import supervise
from tests.factories import make_nodes, make_program_spec, make_spec
from tests.waiting import eventually

ONE, TWO = make_nodes(2)


def done(status: int, output: str) -> Completed:
    return Completed(status=status, output=output, began=0.0, ended=1.0)


def test_unreachable_host_should_be_replaced() -> None:
    results = {
        "deeplearning-worker1": done(0, "/opt/python"),
        "deeplearning-worker2": done(255, "ssh: connect to host deeplearning-worker2 port 22: No route to host\n"),
        "deeplearning-worker3": done(1, "no space left\n"),
    }
    assert failures(results) == {
        "deeplearning-worker2": "ssh: connect to host deeplearning-worker2 port 22: No route to host; "
        "do: `fab replace worker2`",
        "deeplearning-worker3": "no space left",
    }


class Prepared(Hosts):
    """Hosts with given leftovers; records which of them root has cleared."""

    def __init__(self, spec: RunSpec) -> None:
        super().__init__(
            spec,
            Path(spec.runs_root),
            lambda *command: done(0, ""),
            on_poll=lambda: None,
            is_cancelled=lambda: False,
            log_line=lambda line: None,
        )
        self.spec = spec
        self.found: dict[str, bool] = {}
        self.cleared: list[str] = []
        self.refused: dict[str, Completed] = {}
        self.stuck: dict[str, Completed] = {}

    def prepare(
        self, argv: Sequence[str], timeout_s: float, *, admission: str, dirty: Sequence[Node]
    ) -> tuple[dict[str, Completed], dict[str, Completed], dict[str, Completed]]:
        self.admission = admission
        processes, files = (self.found.get(name, False) for name in ("has_rank_processes", "has_rank_files"))
        line = prepare_node.Prepared(python="/python", has_rank_processes=processes, has_rank_files=files).line
        names = [host.name for host in self.spec.hosts]
        return (
            {name: done(0, line) for name in (MASTER, *names)},
            {name: done(0, f"a banner\n{admission}\n") for name in names} | self.refused,
            self.clear(dirty) | self.stuck,
        )

    def clear(self, hosts: Sequence[Node]) -> dict[str, Completed]:
        self.cleared += [host.name for host in hosts]
        return {host.name: done(0, "") for host in hosts}

    def prepared(self, cleared: set[str], **found: bool) -> list[str]:
        """Prepare hosts that all find the same leftovers; return the hosts that root clears."""
        self.found, self.cleared = found, []
        prepare(self.spec, self, is_stopped=lambda: False, cleared=cleared)
        return self.cleared


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    found = make_spec(hosts=(ONE, TWO), efs_mount=str(tmp_path))
    Path(found.run_directory).mkdir(parents=True)
    return found


def test_root_clears_hosts_that_another_run_may_have_used_or_with_processes_of_ranks(spec: RunSpec) -> None:
    hosts, cleared = Prepared(spec), {ONE.instance_id, "i-00000000"}
    assert hosts.prepared(cleared, has_rank_files=True) == [TWO.name]
    assert cleared == {ONE.instance_id, TWO.instance_id}, "what has left the run may have had another one since"
    assert hosts.prepared(cleared, has_rank_files=True) == []
    assert hosts.prepared(cleared, has_rank_processes=True) == [ONE.name, TWO.name]
    assert hosts.prepared(set()) == [ONE.name, TWO.name]
    again = hosts.prepared({ONE.instance_id}, has_rank_processes=True)
    assert again == [TWO.name, ONE.name, TWO.name], "also processes that have started since"


def test_host_with_unkillable_processes_gets_no_rank(spec: RunSpec) -> None:
    hosts = Prepared(spec)
    hosts.stuck = {TWO.name: done(1, "cannot kill processes of an earlier run: 12")}
    with pytest.raises(PreparationError, match=f"^{TWO.name}: cannot kill processes of an earlier run: 12$"):
        hosts.prepared(set())


def test_each_host_admits_only_group_and_hosts_of_the_run(spec: RunSpec) -> None:
    hosts = Prepared(spec)
    hosts.prepared(set())
    gid = Path(spec.run_directory).stat().st_gid
    assert hosts.admission == f"run {gid} {ONE.address},{TWO.address}"


def test_full_disk_of_host_is_reported_with_fix(spec: RunSpec) -> None:
    hosts = Prepared(spec)
    hosts.refused = {TWO.name: done(1, "sed: couldn't flush <unknown>: No space left on device")}
    with pytest.raises(PreparationError, match=f"free space on {TWO.name} .*`fab clean`.*, or `fab replace worker2`"):
        hosts.prepared(set())


def test_full_disk_of_the_master_is_reported_without_a_replacement() -> None:
    found = failures({MASTER: done(1, "cp: error writing 'x': No space left on device")})
    assert found[MASTER].endswith("; do: free space on this master (`fab clean` removes unused files)")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (TWO.name, f"{TWO.name}: no answer within 60 s; do: `fab replace worker2`"),
        (MASTER, f"{MASTER}: no answer within 60 s"),
    ],
)
def test_secrets_rejected_by_host_are_reported_with_fix(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    monkeypatch.setattr(
        "agent.remote.secret_files.distribute", lambda directory, spec, command: {name: "no answer within 60 s"}
    )
    with pytest.raises(PreparationError, match=f"^{reason}$"):
        Prepared(spec).prepared(set())


@pytest.mark.parametrize("answer", [done(0, ""), done(1, "Error: No such file or directory")])
def test_host_that_cannot_isolate_runs_gets_no_rank(spec: RunSpec, answer: Completed) -> None:
    """A node booted by an older version removes leftovers and prints nothing, whatever the request."""
    hosts = Prepared(spec)
    hosts.refused = {TWO.name: answer}
    with pytest.raises(PreparationError, match=f"{TWO.name}: cannot isolate the ranks .*`fab replace worker2`"):
        hosts.prepared(set())


@pytest.mark.parametrize(
    ("name", "remedy"), [(TWO.name, "`fab replace worker2`, then `fab resume {}`"), (MASTER, "`fab resume {}`")]
)
def test_invalid_result_of_a_preparation_is_reported_with_fix(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch, name: str, remedy: str
) -> None:
    hosts = Prepared(spec)
    answers, admitted, emptied = hosts.prepare((), 1.0, admission="", dirty=[])
    admission = f"run {Path(spec.run_directory).stat().st_gid} {ONE.address},{TWO.address}"
    admitted = dict.fromkeys(admitted, done(0, f"{admission}\n"))
    monkeypatch.setattr(hosts, "prepare", lambda *_, **__: (answers | {name: done(0, "")}, admitted, emptied))
    reason = f"{name}: the preparation printed 0 results instead of 1; do: {remedy.format(spec.run_id)}"
    with pytest.raises(PreparationError, match=f"^{reason}$"):
        hosts.prepared(set())


def test_nodes_with_different_pythons_are_reported_with_the_paths() -> None:
    prepared = {name: prepare_node.Prepared(python=f"/{name}") for name in (MASTER, ONE.name, TWO.name)}
    paths = f"/{ONE.name} on {ONE.name}, /{TWO.name} on {TWO.name}; do: `fab replace`"
    with pytest.raises(PreparationError, match=f"{ONE.name}, {TWO.name}: different Python environments .*: {paths}"):
        interpreters(prepared)


def test_host_with_remaining_process_gets_no_rank(spec: RunSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, cleared = Prepared(spec), {ONE.instance_id}
    monkeypatch.setattr(hosts, "clear", lambda hosts: {TWO.name: done(1, "cannot kill processes of an earlier run: 7")})
    with pytest.raises(PreparationError, match=f"{TWO.name}: cannot kill processes of an earlier run: 7"):
        hosts.prepared(cleared, has_rank_processes=True)
    assert cleared == {ONE.instance_id}


def test_stop_during_the_preparation_kills_it_on_all_nodes(efs: Path) -> None:
    """A build of Horovod takes minutes, and would continue beside the next run's."""
    runs, pids = Runs(root=efs / "runs"), efs / "pids"
    spec = make_spec(run_id="one", efs_mount=str(efs), hosts=(ONE, TWO))
    directory = runs["one"]
    directory.path.mkdir(parents=True)
    directory.spec.write_text(spec.to_json())
    pids.mkdir()
    build = shlex.quote(f"echo $$ >{pids}/$$; sleep 600 & echo $! >{pids}/$!; wait")
    ran = f"{NODE_PYTHON} -m agent.supervisor.prepare_node {spec.run_directory}"

    def run(argv: Sequence[str], timeout_s: float) -> Completed:
        """Run the commands for all nodes on this one; the user for ranks cannot kill the login user's processes."""
        if "root" in argv or "deepcdk-rank" in argv:
            return done(0, argv[-1])
        script = argv[-1].replace(ran, f"sh -c {build}").replace(NODE_PYTHON, sys.executable)
        return execute(["/bin/sh", "-c", script], timeout_s)

    def alive() -> list[int]:
        return [int(pid.name) for pid in pids.iterdir() if Path("/proc", pid.name, "exe").exists()]

    liveness.hold("one")
    with directory.log.open("ab", buffering=0) as log, ThreadPoolExecutor(1) as pool:
        supervisor = Supervisor(runs, spec, log, run)
        directory.write_state(supervisor.state)
        supervised = pool.submit(supervisor.supervise)
        eventually(lambda: len(alive()) == 6)
        supervisor.request_stop()
        state = supervised.result()
    assert (state.state, state.reason) == ("stopped", "stopped on request, before the launch")
    assert alive() == []


@pytest.fixture
def program(tmp_path: Path) -> RunSpec:
    """Write a pushed program and a run of it."""
    spec = make_program_spec(efs_mount=str(tmp_path))
    pushed = Path(spec.program_directory)
    (pushed / "lib").mkdir(parents=True)
    (pushed / "train.py").write_text("print()")
    (pushed / "lib" / "start.sh").touch(mode=0o755)
    Path(spec.run_directory).mkdir(parents=True)
    return spec


def test_run_works_in_a_copy_with_the_same_modes(program: RunSpec) -> None:
    stage(program)
    work = Path(program.working_directory)
    assert (work / "train.py").read_text() == "print()"
    assert (work / "lib" / "start.sh").stat().st_mode & 0o111
    (work / "train.py").write_text("changed")
    assert (Path(program.program_directory) / "train.py").read_text() == "print()"


def test_ranks_can_change_copy_and_execute_executable_files(program: RunSpec) -> None:
    stage(program)
    work = Path(program.working_directory)
    modes = {each.name: each.stat().st_mode & 0o7777 for each in (work, *work.rglob("*"))}
    assert modes == {"work": 0o777, "lib": 0o777, "train.py": 0o666, "start.sh": 0o777}


def test_second_attempt_continues_in_copy_of_the_first(program: RunSpec) -> None:
    stage(program)
    (Path(program.working_directory) / "checkpoint").write_text("7")
    stage(program)
    assert (Path(program.working_directory) / "checkpoint").read_text() == "7"


def test_truncated_copy_is_repeated(program: RunSpec) -> None:
    partial = Path(program.run_directory) / ".work.partial"
    partial.mkdir()
    (partial / "half").touch()
    stage(program)
    assert not (Path(program.working_directory) / "half").exists()


def test_run_of_the_payload_needs_no_copy(tmp_path: Path) -> None:
    stage(make_spec(efs_mount=str(tmp_path)))
    assert [each.name for each in tmp_path.iterdir()] == ["home"]


def test_missing_program_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"the uploaded program of run .* is missing: .*repeat `fab train`"):
        stage(make_program_spec(efs_mount=str(tmp_path)))


def test_run_without_its_program_fails_with_fix_as_its_reason(efs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_hosts, "prepare", lambda *_, **__: (prepare_hosts.NO_RUNTIME, {}))
    state, _ = supervise(make_program_spec(efs_mount=str(efs), run_id="one", preflight="skip"))
    assert state.state == "failed" and state.reason.startswith("the uploaded program of run one is missing: ")
