"""A cloud is started and stopped, also by SIGKILL, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcloud.cloud_paths import Layout
from localcloud.network.namespaces import run
from waiting import eventually

pytestmark = pytest.mark.root
ROOT = Path(__file__).resolve().parent
NAME = f"t{os.getpid()}"
LAYOUT = Layout(name=NAME)


def call(command: str, *arguments: str, name: str = NAME, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command of the command line."""
    return subprocess.run(
        [sys.executable, "-m", "localcloud", command, "--name", name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def trace(name: str = NAME) -> dict[str, Any]:
    """Return everything that a cloud could have left on the machine."""
    layout = Layout(name=name)
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if f"--name\0{name}\0".encode() in line or str(layout.run).encode() in line:
            processes.append(line.decode())
    return {
        "mounts": [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line],
        "volumes": [line for line in run(["losetup", "--list", "--output", "BACK-FILE"]).split() if name in line],
        "namespaces": subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout,
        "links": subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.count("\n"),
        "routes": subprocess.run(["ip", "route"], capture_output=True, text=True, check=True).stdout,
        "processes": processes,
        "files": [str(path) for path in (layout.run, layout.data, layout.lock) if path.exists()],
    }


@pytest.fixture
def clean() -> Iterator[dict[str, Any]]:
    """Return the machine's state before the test, and stop a cloud that a failed test leaves running."""
    before = trace()
    yield before
    call("stop")


@pytest.fixture
def started(clean: dict[str, Any]) -> dict[str, Any]:
    done = call("start")
    assert done.returncode == 0, done.stderr
    return clean


def state() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LAYOUT.state.read_text())
    return found


def test_stop_leaves_nothing_and_may_be_repeated(started: dict[str, Any]) -> None:
    assert trace()["processes"]
    done = call("stop")
    assert (done.returncode, "resources are removed" in done.stdout) == (0, True)
    assert trace() == started
    again = call("stop")
    assert (again.returncode, "was not running" in again.stdout) == (0, True)


def test_second_start_is_rejected(started: dict[str, Any]) -> None:
    done = call("start")
    assert done.returncode == 1
    assert "already running" in done.stderr
    assert call("status").returncode == 0


def test_supervisor_cleans_up_after_a_killed_daemon(started: dict[str, Any]) -> None:
    os.kill(state()["pid"], signal.SIGKILL)
    eventually(lambda: trace() == started)
    assert call("status").returncode == 1


def test_stop_cleans_up_after_daemon_and_supervisor_were_killed(started: dict[str, Any]) -> None:
    visitor = subprocess.Popen(
        [sys.executable, "-m", "localcloud", "run", "--name", NAME, "--", "sleep", "300"], cwd=ROOT
    )
    now = state()
    laptop = now["namespaces"]["laptop"]["inode"]
    eventually(lambda: Path(f"/proc/{visitor.pid}/ns/net").stat().st_ino == laptop)
    os.kill(now["supervisor_pid"], signal.SIGKILL)
    os.kill(now["pid"], signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{now['pid']}").exists())
    assert call("stop").returncode == 0
    assert visitor.wait(timeout=60) == -signal.SIGTERM
    assert trace() == started


@pytest.mark.parametrize("killed", [False, True])
def test_hosts_and_their_volumes_end_with_the_cloud(started: dict[str, Any], *, killed: bool) -> None:
    image = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
    launch = f"""
        image=$(aws ssm get-parameter --name {image} --query Parameter.Value --output text) &&
        subnet=$(aws ec2 describe-subnets --query 'Subnets[0].SubnetId' --output text) &&
        aws ec2 run-instances --image-id $image --instance-type t3.micro --subnet-id $subnet --count 2
    """
    path = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = call("run", "--", "sh", "-c", launch, env=path)
    assert done.returncode == 0, done.stderr

    def pids() -> list[int]:
        return [host["pid"] for host in json.loads(call("status", "--json").stdout)["hosts"] if host["pid"]]

    eventually(lambda: len(pids()) == 2)
    hosts, now = pids(), state()
    eventually(lambda: len(trace()["volumes"]) == (0 if now["unlimited_volumes"] else 2))
    if killed:
        os.kill(now["supervisor_pid"], signal.SIGKILL)
        os.kill(now["pid"], signal.SIGKILL)
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in hosts))
    assert call("stop").returncode == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in hosts)
    eventually(lambda: trace() == started)  # the kernel frees loop devices after the hosts


def test_start_cleans_up_after_a_crash(started: dict[str, Any]) -> None:
    now = state()
    os.kill(now["supervisor_pid"], signal.SIGKILL)
    os.kill(now["pid"], signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{now['pid']}").exists())
    assert call("start").returncode == 0
    assert state()["pid"] != now["pid"]
    assert call("stop").returncode == 0
    assert trace() == started


def test_daemon_ends_with_its_supervisor(started: dict[str, Any]) -> None:
    now = state()
    os.kill(now["supervisor_pid"], signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{now['pid']}").exists())
    assert call("stop").returncode == 0
    assert trace() == started


def test_cloud_stops_when_its_owner_is_killed(clean: dict[str, Any]) -> None:
    owner = subprocess.Popen(["sleep", "300"])
    assert call("start", "--owner", str(owner.pid)).returncode == 0
    assert call("status").returncode == 0
    owner.kill()
    eventually(lambda: trace() == clean)
    owner.wait()


def test_cloud_of_an_owner_that_has_exited_stops_at_once(clean: dict[str, Any]) -> None:
    owner = subprocess.Popen(["true"])
    owner.wait()
    call("start", "--owner", str(owner.pid))
    eventually(lambda: trace() == clean)


def test_laptop_passes_exit_code_directory_and_output(started: dict[str, Any]) -> None:
    done = call("run", "--", "sh", "-c", "pwd; echo $HOME; echo $AWS_ENDPOINT_URL; exit 7")
    assert done.returncode == 7
    assert done.stdout.splitlines() == [str(ROOT), str(LAYOUT.laptop), "http://198.18.0.1"]
    assert call("run", "--", "no-such-command").returncode == 127
    assert call("run").returncode == 1


def test_laptop_reaches_the_api_and_not_the_machine(started: dict[str, Any]) -> None:
    aws = call("run", "--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "http://198.18.0.1/moto-api/")
    assert aws.stdout != "000", aws.stderr
    links = call("run", "--", "ip", "-o", "link").stdout.splitlines()
    assert [line.split(": ")[1].split("@")[0] for line in links] == ["lo", "eth0"]
    routes = call("run", "--", "ip", "route").stdout
    assert routes.splitlines()[0].strip() == "default via 100.64.0.1 dev eth0 quickack 1"
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", "0", "--bind", "0.0.0.0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            port = server.stdout.readline().split("port ")[1].split(" ")[0]
            for line in subprocess.run(["ip", "-o", "-4", "addr"], capture_output=True, text=True).stdout.splitlines():
                address = line.split()[3].split("/")[0]
                probe = call("run", "--", "curl", "-sm", "2", f"http://{address}:{port}/")
                assert probe.returncode != 0, address
        finally:
            server.terminate()


def test_daemon_start_failure_is_reported(clean: dict[str, Any], tmp_path: Path) -> None:
    done = call("start", "--mount", f"{tmp_path}:/etc/passwd/here")
    assert done.returncode == 1
    assert "did not start" in done.stderr
    assert "etc/passwd" in done.stderr
    assert trace() == clean
