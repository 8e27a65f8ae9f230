"""Preparing a node: ranks must fit its processors, and an overlay is made only if it is needed."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.environment.horovod_build_settings import Settings
from agent.environment.program_packages import Overlay
from agent.remote.secret_files import TAKEN
from agent.runs.node_claims import Runs
from agent.spec.nodes import NODE_PYTHON
from agent.supervisor.prepare_node import (
    REPLACE_THE_MASTER,
    NodeError,
    Prepared,
    check_slots,
    clear,
    main,
    make_python,
    parse,
)
from tests.factories import make_node, make_program_spec, make_spec

RUNTIME = Path("/opt/deepcdk/runtime/0123456789abcdef")


def test_without_gpus_node_runs_at_most_one_rank_per_core() -> None:
    host = make_node(2, slots=4)
    check_slots(host, gpus=0, cpus=4)
    with pytest.raises(NodeError, match="4 ranks are requested on deeplearning-worker2, which has 2 CPUs"):
        check_slots(host, gpus=0, cpus=2)


def test_with_gpus_number_of_cores_does_not_count() -> None:
    host = make_node(2, slots=4)
    check_slots(host, gpus=8, cpus=2)
    with pytest.raises(NodeError, match="which has 1 GPUs"):
        check_slots(host, gpus=1, cpus=96)


def test_layer_has_packages_locked_by_laptop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Overlay] = []

    def ensure(self: Overlay) -> Path:
        made.append(self)
        return self.python

    monkeypatch.setattr(Overlay, "ensure", ensure)
    runtime, log = Path("/runtime/bin/python"), tmp_path / "log"
    assert (make_python(make_program_spec(), runtime, log), made) == (runtime, [])
    spec = make_program_spec(efs_mount=str(tmp_path), locked=True)
    Path(spec.lock_file).parent.mkdir(parents=True)
    Path(spec.lock_file).write_text("toy==1\n")
    assert make_python(spec, runtime, log) == made[0].python
    assert (made[0].lock, made[0].program) == ("toy==1\n", Path(spec.program_directory))
    others = (dataclasses.replace(made[0], runtime=Path("/o")), dataclasses.replace(made[0], lock="toy==2\n"))
    assert len({each.fingerprint for each in (made[0], *others)}) == 3


def prepared(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    *,
    ensure: Callable[..., Path] = lambda settings, wheelhouse: RUNTIME / "bin" / "python",
    **changes: object,
) -> tuple[int, str, str]:
    """Prepare this machine for a run, with the tests' Python as its runtime; return status, output and errors."""
    # Use a separate shared file system: a node kills all processes of other runs that share its runs directory, and the
    # hosts of an embedded cloud on this machine use /mnt/efs.
    (tmp_path / "spec.json").write_text(make_spec(efs_mount=str(tmp_path), **changes).to_json())
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setattr("agent.environment.runtime.ensure", ensure)
    monkeypatch.setattr("agent.environment.master_environment.ensure", lambda: Path("/masters/python"))
    monkeypatch.setattr("agent.remote.rank_user.check", lambda node, remedy: None)  # this machine has none
    monkeypatch.setattr("agent.remote.rank_user.check_groups", lambda master, remedy: None)
    monkeypatch.setattr("agent.remote.rank_user.check_firewall", lambda node, remedy: None)
    # Ranks on hosts of an embedded cloud are processes of this machine, too.
    monkeypatch.setattr("agent.remote.rank_leftovers.processes_are_there", lambda: False)
    monkeypatch.setattr("agent.remote.rank_leftovers.files_are_there", lambda: False)
    # The run directory does not exist on this machine.
    monkeypatch.setattr(
        "agent.supervisor.prepare_node.facts_command",
        lambda python, spec: [sys.executable, "-c", f"print('facts by {python}')"],
    )
    status = main([str(tmp_path)])
    return status, *capfd.readouterr()


def test_node_reports_facts_and_then_python_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / TAKEN).mkdir(parents=True)
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: spec.hosts[0])
    status, output, _ = prepared(tmp_path, monkeypatch, capfd)
    assert status == 0
    assert output.splitlines()[0] == f"facts by {RUNTIME}/bin/python"
    assert parse(output) == Prepared(python=f"{RUNTIME}/bin/python", runtime=str(RUNTIME))
    assert not (tmp_path / TAKEN).exists()


def test_run_without_pre_flight_gets_no_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: spec.hosts[0])
    status, output, _ = prepared(tmp_path, monkeypatch, capfd, preflight="skip")
    assert (status, output) == (0, Prepared(python=f"{RUNTIME}/bin/python", runtime=str(RUNTIME)).line + "\n")


@pytest.mark.parametrize(("launcher", "python"), [("horovod", "/masters/python"), ("plain", NODE_PYTHON)])
def test_master_prepares_only_environment_of_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], launcher: str, python: str
) -> None:
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: None)
    program: dict[str, Any] = {"program": "fedcba9876543210", "payload": "", "command": ("train.py",)}
    status, output, _ = prepared(tmp_path, monkeypatch, capfd, rank_launcher=launcher, **program)
    assert (status, output) == (0, Prepared(python=python).line + "\n")


def test_hosts_with_gpus_get_the_runtime_of_their_compute_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Settings, Path]] = []
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: spec.hosts[0])
    hosts = (make_node(1, kind="x86_64-sm86"), make_node(2, kind="x86_64-sm80"))

    def ensure(settings: Settings, wheelhouse: Path) -> Path:
        asked.append((settings, wheelhouse))
        return RUNTIME / "bin" / "python"

    places = {"horovod_wheelhouse": "/mnt/efs/wheels"}
    status, _, _ = prepared(tmp_path, monkeypatch, capfd, ensure=ensure, hosts=hosts, **places)
    assert status == 0
    settings = Settings(operations="gpu", compute_capabilities=(80, 86), wheelhouse="/mnt/efs/wheels")
    assert asked == [(settings, tmp_path / "payloads" / ".wheelhouse")]


@pytest.mark.parametrize("output", ["", "facts\n", f"{Prepared(python='a').line}\n" * 2])
def test_answer_must_contain_result_exactly_once(output: str) -> None:
    with pytest.raises(ValueError, match=r"printed [02] results instead of 1"):
        parse(output)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, "9" * 5000, "[]", '{"python": 1}', '{"python": "a", "other": 1}', "{}"]
)
def test_invalid_result_line_is_rejected(line: str) -> None:
    with pytest.raises(ValueError, match=r"printed an invalid result|nested too deeply|more than 18 digits"):
        parse(f"deepcdk-prepared {line}\n")


def test_remaining_process_of_another_run_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agent.supervisor.prepare_node.signal_run", lambda root, **how: {"signalled": [7], "left": [7]})
    status, output, errors = prepared(tmp_path, monkeypatch, capfd)
    expected = f"processes of another run could not be killed: 7; do: {REPLACE_THE_MASTER}\n"
    assert (status, output, errors) == (1, "", expected)
    with pytest.raises(NodeError, match="could not be killed: 7; do: `fab replace` this node"):
        clear(make_spec(), tmp_path, on_master=False)


def test_other_live_runs_are_spared_only_on_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, spared = make_spec(run_id="one", efs_mount=str(tmp_path)), []
    runs = Runs(root=tmp_path / "runs")
    for run_id, index in (("one", 1), ("two", 3)):
        runs.claim(run_id, [make_node(index)])

    def signal_run(root: str, **how: Any) -> dict[str, list[int]]:
        spared.append(list(how["spared"]()))
        return {"left": []}

    monkeypatch.setattr("agent.supervisor.prepare_node.signal_run", signal_run)
    for on_master in (True, False):
        clear(spec, tmp_path, on_master=on_master)
    assert spared == [["one", "two"], []]


def test_errors_are_printed_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "spec.json" in capsys.readouterr().err


def test_program_with_own_environment_gets_no_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Path, dict[str, Any]]] = []
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: spec.hosts[0])

    def own(lock: Path, **options: Any) -> Path:
        asked.append((lock, options))
        return Path("/home/me/environments/00aa/bin/python")

    def runtime(settings: Settings, wheelhouse: Path) -> Path:
        raise AssertionError(settings)

    monkeypatch.setattr("agent.environment.runtime.ensure_own", own)
    program: dict[str, Any] = {"program": "fedcba9876543210", "payload": "", "command": ("train.py",)}
    program |= {"own_environment": True, "horovod_for": ("torch",)}
    status, output, _ = prepared(tmp_path, monkeypatch, capfd, ensure=runtime, **program)
    assert status == 0
    ready = Prepared(python="/home/me/environments/00aa/bin/python", runtime="/home/me/environments/00aa")
    assert parse(output) == ready
    ((lock, options),) = asked
    assert lock == tmp_path / "payloads" / "fedcba9876543210" / "environment.txt"
    assert options["program"] == lock.with_name("program")
    assert options["settings"] == Settings(frameworks=("torch",))
    assert options["wheelhouse"] == tmp_path / "payloads" / ".wheelhouse"
