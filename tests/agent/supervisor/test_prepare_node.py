"""Facts about preparing a node: ranks must fit its processors, and an overlay is made only where it is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agent.remote.secret_files import TAKEN
from agent.supervisor.prepare_node import NodeError, check_slots, main, overlay_of
from tests.factories import make_node, make_program_spec, make_spec


def test_without_gpus_a_node_takes_as_many_ranks_as_cores() -> None:
    host = make_node(2, slots=4)
    check_slots(host, gpus=0, cores=4)
    with pytest.raises(NodeError, match="4 ranks are asked of deeplearning-worker2, which has 2 cores"):
        check_slots(host, gpus=0, cores=2)


def test_with_gpus_the_cores_do_not_count() -> None:
    host = make_node(2, slots=4)
    check_slots(host, gpus=8, cores=2)
    with pytest.raises(NodeError, match="which has 1 GPUs"):
        check_slots(host, gpus=1, cores=96)


def test_only_packages_need_a_layer(tmp_path: Path) -> None:
    assert overlay_of(make_program_spec(), Path("/runtime/bin/python"), tmp_path) is None
    overlay = overlay_of(make_program_spec(keras=2), Path("/runtime/bin/python"), tmp_path)
    assert overlay is not None
    assert overlay.further == ("tf-keras==2.21.*",)
    assert overlay.program == Path("/mnt/efs/payloads/fedcba9876543210/program")


def test_keras_2_goes_with_the_runtimes_tensorflow() -> None:
    locks = Path(__file__).parents[3] / "agent" / "environment"
    assert "\ntensorflow-cpu==2.21." in (locks / "requirements.txt").read_text()
    assert "\ntensorflow==2.21." in (locks / "requirements-gpu.txt").read_text()


def prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **changes: object
) -> tuple[int, str, str]:
    """Equip this machine, whose runtime is the Python of the tests, for a run; return status, output and errors."""
    # With a shared file system of its own: a node ends all processes of other runs that share its runs, and the hosts
    # of an embedded cloud on this machine have theirs on /mnt/efs.
    (tmp_path / "spec.json").write_text(make_spec(efs_mount=str(tmp_path), **changes).to_json())
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    monkeypatch.setattr("agent.environment.runtime.ensure", lambda *options: Path(sys.executable))
    # The launch's run directory is on no file system of this machine.
    monkeypatch.setattr(
        "agent.supervisor.prepare_node.facts_command", lambda python, spec: [python, "-c", "print('facts')"]
    )
    status = main([str(tmp_path)])
    return status, *capfd.readouterr()


def test_a_node_tells_its_facts_and_then_the_ranks_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / TAKEN).mkdir(parents=True)
    monkeypatch.setattr("agent.supervisor.prepare_node.this_host", lambda spec: spec.hosts[0])
    status, output, _ = prepared(tmp_path, monkeypatch, capfd)
    assert (status, output.splitlines()) == (0, ["facts", sys.executable])
    assert not (tmp_path / TAKEN).exists()


@pytest.mark.parametrize(("preflight", "host"), [("skip", 0), ("auto", None)])
def test_a_master_and_a_run_without_pre_flight_tell_no_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], preflight: str, host: int | None
) -> None:
    monkeypatch.setattr(
        "agent.supervisor.prepare_node.this_host", lambda spec: None if host is None else spec.hosts[host]
    )
    assert prepared(tmp_path, monkeypatch, capfd, preflight=preflight)[:2] == (0, f"{sys.executable}\n")


def test_a_process_of_another_run_that_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agent.supervisor.prepare_node.signal_run", lambda root, **how: {"signalled": [7], "left": [7]})
    status, output, errors = prepared(tmp_path, monkeypatch, capfd)
    assert (status, output, errors) == (1, "", "processes of another run stay: 7\n")


def test_what_is_wrong_is_told_on_the_error_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "spec.json" in capsys.readouterr().err
