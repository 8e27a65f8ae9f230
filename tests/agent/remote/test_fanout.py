"""The fan-out: arguments reach the program unchanged, every node's result is shown, and no process is left running."""

from __future__ import annotations

import ast
import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from agent.errors import SpecError
from agent.remote import fanout
from agent.remote.fanout import AbandonedError, fan_out, node_command
from agent.remote.fanout_stub import READY
from agent.spec.laptop_requests import RemoteCommand
from tests.factories import make_master, make_node, nodes_text
from tests.stand_ins import write_program
from tests.waiting import eventually
from tests.words import LONG, NASTIEST, WORDS

NODES = nodes_text([make_master(), make_node(2), make_node(1)])


@pytest.fixture(autouse=True, scope="module")
def node_python() -> Any:
    """Use this Python as the Python of every node."""
    patch = pytest.MonkeyPatch()
    patch.setattr(fanout.node_command, "__defaults__", (sys.executable,))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an `ssh` that runs the line in a shell on this machine, as sshd does. The host `down` does not answer."""
    script = '[ "$1" = down ] && { echo "ssh: no route" >&2; exit 255; }\nexec /bin/sh -c "$2"'
    return write_program(tmp_path_factory.mktemp("ssh") / "ssh", script)


def call(ssh: str, *command: str, hosts: tuple[str, ...] = ("one",), **fields: Any) -> tuple[int, list[dict[str, Any]]]:
    """Fan out to these hosts; return the number of failures and the messages."""
    messages: list[dict[str, Any]] = []
    ours, theirs = os.pipe()
    try:
        with os.fdopen(ours, "rb", buffering=0) as stdin:
            request = RemoteCommand.from_line(RemoteCommand(command=command, **fields).to_line())
            return fan_out(request, hosts, lambda m: messages.append(dict(m)), stdin, ssh), messages
    finally:
        os.close(theirs)


def output(messages: list[dict[str, Any]], host: str = "one", stream: str = "stdout") -> bytes:
    found = (m for m in messages if m.get("host") == host and m.get("stream") == stream)
    return b"".join(base64.b64decode(m["data"]) for m in found)


def ends(messages: list[dict[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {m["host"]: m for m in messages if "exit_code" in m}


def test_impossible_argument_is_rejected(ssh: str) -> None:
    failed, messages = call(ssh, "true", "x" * 200_000)
    assert (failed, ends(messages)["one"]["exit_code"]) == (1, 126)
    assert output(messages, stream="stderr") == b"deepcdk: cannot start true: Argument list too long\n"
    with pytest.raises(SpecError, match="NUL"):
        RemoteCommand(command=("a\0b",))


@pytest.mark.parametrize("line", [b"[]", b'{"command": []}', b"\xff"])
def test_invalid_request_is_reported(line: bytes) -> None:
    with pytest.raises(SpecError, match="the laptop sent an invalid request: "):
        RemoteCommand.from_line(line)


def test_default_is_all_workers() -> None:
    command = ("true",)
    assert RemoteCommand(command=command).hosts(NODES, pytest.fail) == ("deeplearning-worker1", "deeplearning-worker2")
    assert RemoteCommand(command=command, nodes=1).hosts(NODES, pytest.fail) == ("deeplearning-worker1",)
    assert RemoteCommand(command=command, master=True).hosts("", pytest.fail) == ("deeplearning-master",)
    with pytest.raises(SpecError, match="3 nodes requested, but 2 ready"):
        RemoteCommand(command=command, nodes=3).hosts(NODES, pytest.fail)
    with pytest.raises(SpecError, match="no worker is ready"):
        RemoteCommand(command=command).hosts("", pytest.fail)


def test_malformed_nodes_file_is_reported_before_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodes"
    file.write_bytes(
        b"deeplearning-worker1 \xff i-00000001 1 eth0 us-east-1a\n" + NODES.splitlines(keepends=True)[1].encode()
    )
    monkeypatch.setattr(fanout, "NODES_PATH", str(file))
    monkeypatch.setattr(fanout, "fan_out", lambda *_: 0)
    monkeypatch.setattr(fanout, "_read_line", lambda _: RemoteCommand(command=("true",)).to_line())
    assert fanout.main() == 0
    warning, hosts = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert r"line 1 of /opt/deeplearning/nodes on the master is ignored" in warning["warning"]
    assert hosts == {"hosts": ["deeplearning-worker2"]}


def test_variables_reach_the_command_and_no_command_line(ssh: str) -> None:
    script = 'printf %s "$SECRET"; tr "\\0" " " </proc/$PPID/cmdline | grep -c "p4 ss" >&2'
    _, messages = call(ssh, "sh", "-c", script, environment=(("SECRET", "p4 ss"),))
    assert output(messages) == b"p4 ss"
    assert output(messages, stream="stderr") == b"0\n"


def test_each_nodes_status_is_reported_and_failures_are_counted(ssh: str) -> None:
    failed, messages = call(
        ssh, "sh", "-c", "echo out; echo err >&2; exit 3", hosts=("one", "down", "deeplearning-master")
    )
    assert failed == 3
    found = ends(messages)
    assert {host: (end["exit_code"], end["reached"]) for host, end in found.items()} == {
        "one": (3, True), "down": (255, False), "deeplearning-master": (3, True),
    }  # fmt: skip
    assert "no route" in found["down"]["trouble"]
    assert (output(messages), output(messages, stream="stderr")) == (b"out\n", b"err\n")


def test_missing_and_killed_commands_have_the_status_of_a_shell(ssh: str) -> None:
    assert ends(call(ssh, "/no/such")[1])["one"]["exit_code"] == 127
    assert ends(call(ssh, "sh", "-c", "kill -9 $$")[1])["one"]["exit_code"] == 137


def test_nodes_work_at_once(ssh: str, tmp_path: Path) -> None:
    here = "echo >$0.$$; for n in $(seq 600); do set -- $0.*; [ $# -eq 6 ] && exit; sleep 0.05; done; exit 9"
    _, messages = call(ssh, "sh", "-c", here, str(tmp_path / "here"), hosts=tuple(f"h{n}" for n in range(6)))
    assert {end["exit_code"] for end in ends(messages).values()} == {0}, "each waited until all six were there"


def test_commands_are_stopped_if_reader_exits(ssh: str, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    ours, theirs = os.pipe()

    def hang_up() -> None:
        eventually(lambda: mark.exists() and mark.read_text().endswith("\n"))
        os.close(theirs)

    threading.Thread(target=hang_up).start()
    request = RemoteCommand(command=("sh", "-c", f"echo $$ >{mark}; sleep 60; :"))
    with os.fdopen(ours, "rb", buffering=0) as stdin, pytest.raises(AbandonedError):
        fan_out(request, ("one",), lambda _: None, stdin, ssh)
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()


def test_invalid_request_has_exit_status_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agent.remote.fanout"], input=b"{}\n", capture_output=True, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (
        2,
        b"the laptop sent an invalid request: 'command' is missing; repeat the command\n",
    )


def test_commands_for_ranks_run_on_workers_as_their_user() -> None:
    started = node_command("deeplearning-worker1", "ssh", "python", as_rank=True)
    assert started[:4] == ["ssh", "-l", "deepcdk-rank", "deeplearning-worker1"]
    with pytest.raises(SpecError, match="the master has no ranks"):
        RemoteCommand(command=("true",), master=True, as_rank=True)


def test_special_arguments_and_variables_arrive_unchanged(ssh: str) -> None:
    names = [name for name in (*NASTIEST, LONG) if name and "=" not in name]
    show = "import os, sys; os.write(1, ascii([sys.argv[1:], sorted(os.environb.items())]).encode())"
    command = (sys.executable, "-I", "-X", "utf8", "-c", show, *NASTIEST, LONG)
    failed, messages = call(ssh, *command, environment=tuple((name, f"of {name[:9]}") for name in names))
    words, variables = ast.literal_eval(output(messages).decode("ascii"))
    assert (failed, words) == (0, [*NASTIEST, LONG])
    given_ = {(os.fsencode(name), os.fsencode(f"of {name[:9]}")) for name in names}
    assert given_ <= set(variables)


@given(name=WORDS, value=WORDS)
def test_any_variable_is_parsed_unchanged_or_rejected(name: str, value: str) -> None:
    try:
        request = RemoteCommand(command=("true",), environment=((name, value),))
    except SpecError:
        assert not name or "=" in name
        return
    assert RemoteCommand.from_line(request.to_line()) == request


def test_endless_greeting_uses_bounded_memory() -> None:
    messages: list[Mapping[str, Any]] = []
    with subprocess.Popen(["true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        host = fanout._Host("worker", process)
        for _ in range(200):
            for stream in ("stdout", "stderr"):
                fanout._forward(host, stream, b"x" * fanout.BLOCK, messages.append)
        assert max(len(host.head), len(host.trouble)) <= fanout.MAX_GREETING + fanout.BLOCK
        assert not messages
        fanout._forward(host, "stdout", READY + b"output", messages.append)
    assert [message["stream"] for message in messages] == ["stderr", "stdout"]
