"""mpirun on the first host makes the master start its daemons: which requests it, or any rank, can make."""

from __future__ import annotations

import base64
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

import pytest

from agent.launch import mpirun
from agent.launch.mpirun import mpi_command, mpi_variables, parse_request

ROOT = Path(__file__).parents[3]
SSH = """\
#!/bin/sh
for word; do printf '%s\\n' "$word"; done >>"${0%/*}/called"
for word; do :; done
[ "$1" = deeplearning-worker3 ] && exit 255
exec sh -c "$word"
"""
BASE = Path("/opt/deepcdk/runtime/ab")
LAUNCH = "import sys; from agent.launch.mpirun import MpiRun; hosts, *words = sys.argv[1:]; "
LAUNCH += "sys.exit(MpiRun(hosts.split(','), '/', words).run())"


def encoded(command: str | bytes) -> str:
    return base64.b64encode(command.encode() if isinstance(command, str) else command).decode()


def run(folder: Path, *words: str, hosts: str = "deeplearning-worker1,deeplearning-worker2") -> tuple[int, str, str]:
    """Run a command as mpirun on the first host; return its status, the log, and the arguments of SSH."""
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", LAUNCH, hosts, *words], env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout + done.stderr, (folder / "called").read_text()


def test_daemon_is_started_on_each_further_host_once(tmp_path: Path) -> None:
    agent = f"/bin/sh {ROOT}/agent/bin/ask_master"
    asking = f"for each in 1 2; do {agent} deeplearning-worker2 'orted  -mca x \"$HOME\";' echo it runs; done; exit 7"
    status, log, called = run(tmp_path, "sh", "-c", asking)
    assert called.count('deeplearning-worker2\ncd / && orted  -mca x "$HOME"; echo it runs\n') == 1
    assert (status, "it runs" in log) == (7, True)
    refused = "[launcher] mpirun requested a daemon on 'deeplearning-worker2', but the host already has one; stopping"
    assert refused in log


@pytest.mark.parametrize(
    "host",
    [
        *("deeplearning-master", "localhost", "127.0.0.1", "-oProxyCommand=id", "ec2-user@deeplearning-worker2"),
        *("deeplearning-worker1", "deeplearning-worker4", "deeplearning-worker2:22", "DEEPLEARNING-WORKER2", "\x00"),
    ],
)
def test_no_command_is_started_on_another_host(tmp_path: Path, host: str) -> None:
    (tmp_path / "request").write_text(f"[launcher] start {host} {encoded('id')}\n")
    status, _, called = run(tmp_path, "cat", str(tmp_path / "request"))
    assert status == 0
    assert called == f"deeplearning-worker1\ncd / && exec cat {tmp_path}/request\n"


def test_command_is_not_read_as_an_option_of_ssh(tmp_path: Path) -> None:
    """OpenSSH also reads options after the host."""
    (tmp_path / "request").write_text(f"[launcher] start deeplearning-worker2 {encoded('-oProxyCommand=id')}\n")
    _, _, called = run(tmp_path, "cat", str(tmp_path / "request"))
    assert not [word for word in called.splitlines() if word.startswith("-")]


@pytest.mark.parametrize(
    "line",
    [
        b"[0]<stdout>:[launcher] start a YQ==\n",
        b"[launcher] start a b YQ==\n",
        b"[launcher] start a YQ=\n",
        b"[launcher] start a " + encoded(b"a\0b").encode() + b"\n",
        b"[launcher] start a " + encoded(b"\xff").encode() + b"\n",
        b"[launcher] start " + b"a" * 300 + b" YQ==\n",
        b"",
    ],
)
def test_other_lines_start_no_command(line: bytes) -> None:
    assert parse_request(line) is None


def test_endless_output_is_forwarded_in_parts(tmp_path: Path) -> None:
    status, log, _ = run(tmp_path, "sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x")
    assert (status, log.count("x")) == (0, 1_000_000)
    assert max(map(len, log.splitlines())) <= 1 << 16


def test_unreachable_host_stops_run_and_is_reported(tmp_path: Path) -> None:
    status, log, _ = run(tmp_path, "true", hosts="deeplearning-worker3")
    assert (status, log) == (255, "[launcher] deeplearning-worker3 ended: 255\n")
    (tmp_path / "request").write_text(f"[launcher] start deeplearning-worker3 {encoded('orted')}\n")
    waiting = f"cat {tmp_path}/request; cat >/dev/null; exit 1"
    status, log, _ = run(tmp_path, "sh", "-c", waiting, hosts="deeplearning-worker1,deeplearning-worker3")
    assert (status, log) == (1, "[launcher] deeplearning-worker3 ended: 255\n")


def test_command_starts_each_rank_on_its_slot_without_values() -> None:
    found = mpi_command(
        BASE,
        ranks=3,
        hosts="a:2,b:1",
        interfaces=["10.0.0.0/20"],
        exported=["HOME", "TOKEN"],
        rank=["python", "x"],
    )
    assert shlex.join(found) == (
        f"{BASE}/bin/mpirun --allow-run-as-root -np 3 -H a:2,b:1 --bind-to none --map-by slot --mca pml ob1"
        " --mca btl '^openib' --mca btl_tcp_if_include 10.0.0.0/20 -x HOME -x TOKEN python x"
    )


def test_without_a_run_mpirun_and_daemons_are_in_horovods_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of an overlay imports Horovod from the environment below it."""
    horovod, util = ModuleType("horovod"), ModuleType("env")
    horovod.__file__ = f"{BASE}/lib/python3.12/site-packages/horovod/__init__.py"
    vars(util).update(is_exportable=lambda name: True)
    monkeypatch.setitem(sys.modules, "horovod", horovod)
    monkeypatch.setitem(sys.modules, "horovod.runner.common.util.env", util)
    started = mock.Mock()
    monkeypatch.setattr(os, "execve", started)
    mpirun.run(Path("/overlay"), mock.Mock(hosts="a:1,b:1", num_proc=2), None, {}, ["env", "-C", "/tree", "python"])
    program, _, variables = started.call_args.args
    assert (program, variables["OMPI_MCA_orte_launch_agent"]) == (f"{BASE}/bin/mpirun", f"{BASE}/bin/orted")


def test_open_mpi_yields_cpu_finds_daemon_and_detects_lost_host() -> None:
    found = mpi_variables(BASE, 70, ["10.0.0.0/20", "lo"])
    assert found == {
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
        "OMPI_MCA_plm_rsh_num_concurrent": "70",
        "OMPI_MCA_orte_launch_agent": f"{BASE}/bin/orted",
        "OMPI_MCA_oob_tcp_if_include": "10.0.0.0/20,lo",
        "OMPI_MCA_oob_tcp_keepalive_time": "30",
        "OMPI_MCA_oob_tcp_keepalive_intvl": "10",
        "OMPI_MCA_oob_tcp_keepalive_probes": "3",
    }
    assert "OMPI_MCA_oob_tcp_if_include" not in mpi_variables(BASE, 1, [])
