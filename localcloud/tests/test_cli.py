"""The command line."""

from __future__ import annotations

import errno
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from localcloud import control_socket, host_kinds, laptop, lifecycle
from localcloud.cli import main
from localcloud.cloud_paths import BadNameError, Layout
from localcloud.errors import CommandError, LocalCloudError, MissingRequirementsError


@pytest.mark.parametrize("command", [["status"], ["run", "--", "true"], ["exec", "i-1", "--", "true"], ["cut", "i-1"]])
def test_commands_report_that_cloud_is_not_running(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command[0], "--name", "nowhere", *command[1:]]) == 1
    assert "no embedded cloud named nowhere is running" in capsys.readouterr().err


def test_invalid_names_and_sizes_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--name", "../etc"]) == 1
    assert "cloud name '../etc'" in capsys.readouterr().err
    for size in ("much", "0m", "64", "99999999g"):
        assert main(["start", "--name", "nowhere", "--efs-size", size]) == 1
        assert f"--efs-size '{size}'" in capsys.readouterr().err
    for seed in ("good", "-1", "1.5", "1234567890"):
        assert main(["start", "--name", "nowhere", f"--api-faults={seed}"]) == 1
        assert f"--api-faults '{seed}': must be a whole number" in capsys.readouterr().err
    for command in ("start", "api"):
        assert main([command, "--name", "nowhere", "--vcpus=-1"]) == 1
        assert "--vcpus '-1': must be a whole number" in capsys.readouterr().err


def test_nothing_is_installed_without_root(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 60999)
    monkeypatch.setattr("localcloud.api.permissions.evaluator.install", lambda: pytest.fail("installed"))
    assert main(["prepare"]) == 1
    assert "root is needed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fly"], "invalid choice: 'fly'"),
        (["interrupt", "i-1", "--notice", "inf"], "--notice: must be 0 to 86400 seconds, not inf"),
    ],
)
def test_invalid_arguments_are_reported(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(words)
    assert exit.value.code == 2
    assert says in capsys.readouterr().err


def test_failed_command_shows_its_last_lines() -> None:
    error = CommandError(["ip", "link"], 2, "\n".join(str(number) for number in range(10)))
    assert str(error) == "`ip link` failed with exit status 2: 5\n6\n7\n8\n9"


def test_all_missing_requirements_are_listed() -> None:
    assert str(MissingRequirementsError(["a", "b"])).endswith("\n  - a\n  - b")


@pytest.mark.parametrize("name", ["", "../x", "Lc0", "0lc", "a b", "x" * 33, "lc0\n"])
def test_invalid_cloud_names_are_rejected(name: str) -> None:
    with pytest.raises(BadNameError, match="must be 1 to 32"):
        Layout(name=name)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), 127, "./job: command not found"),
        (PermissionError(errno.EACCES, "Permission denied"), 126, "./job: cannot be executed: Permission denied"),
        (OSError(errno.ENOEXEC, "Exec format error"), 126, "./job: cannot be executed: Exec format error"),
    ],
)
def test_command_that_cannot_be_executed_is_reported(
    error: OSError, code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(lifecycle, "read_state", lambda layout: {"endpoint": "http://198.18.0.1"})
    monkeypatch.setattr(laptop, "replace_process", fail)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert main(["run", "--", "./job"]) == code
    assert message in capsys.readouterr().err


def test_user_without_access_to_control_socket_is_advised_to_use_sudo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(self: socket.socket, address: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(lifecycle, "read_state", lambda layout: {})
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert main(["status"]) == 1
    assert "only root can use the embedded cloud lc0; repeat the command with sudo" in capsys.readouterr().err


def test_system_error_is_reported_with_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/run/localcloud/lc0")

    monkeypatch.setattr(lifecycle, "check", fail)
    assert main(["start"]) == 1
    assert capsys.readouterr().err == "localcloud: /run/localcloud/lc0: No space left on device\n"


def test_command_on_host_that_has_exited_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"instance_id": "i-7", "hostname": "ip-10-0-1-5", "private_ip": "10.0.1.5", "agent": "", "pid": 0}
    monkeypatch.setattr(control_socket, "request", lambda layout, request: {"hosts": [host]})
    assert main(["exec", "i-7", "--", "true"]) == 1
    assert "host i-7 is not running; print its console with: python -m localcloud logs" in capsys.readouterr().err


def test_daemon_that_closes_the_connection_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    layout = Layout(name="lc0", run_root=tmp_path)
    layout.run.mkdir()
    monkeypatch.setattr(lifecycle, "read_state", lambda layout: {})
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(layout.control))
        server.listen()

        def close_after_request() -> None:
            with server.accept()[0] as connection:
                connection.recv(100)

        threading.Thread(target=close_after_request, daemon=True).start()
        with pytest.raises(LocalCloudError, match=r"does not answer \(it closed the connection\); read its log"):
            control_socket.request(layout, {"do": "status"})


@pytest.mark.parametrize("named", ["i-7", "ip-10-0-1-5", "10.0.1.5"])
def test_network_of_host_is_cut_by_id_name_or_address(
    named: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = {"instance_id": "i-7", "hostname": "ip-10-0-1-5", "private_ip": "10.0.1.5"}
    asked: list[dict[str, str]] = []

    def answer(layout: Layout, request: dict[str, str]) -> dict[str, Any]:
        asked.append(request)
        return {"hosts": [host], "error": ""}

    monkeypatch.setattr(control_socket, "request", answer)
    assert main(["cut", named]) == 0
    assert asked[-1] == {"do": "cut", "instance": "i-7"}
    assert capsys.readouterr().out == "i-7 (10.0.1.5): network cut\n"


@pytest.mark.parametrize("why", ["", "no loop devices"])
def test_start_and_status_report_volumes_without_sizes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], why: str
) -> None:
    state: dict[str, Any] = {"name": "a", "endpoint": "http://198.18.0.1", "state_directory": "/run", "hosts": []}
    state |= {"packages": {}, "api_faults": None, "error": "", "unlimited_volumes": why}
    monkeypatch.setattr(lifecycle, "check", lambda options: None)
    monkeypatch.setattr(lifecycle, "start", lambda options: state)
    monkeypatch.setattr(host_kinds, "prepare", lambda options, environment: None)
    monkeypatch.setattr(control_socket, "request", lambda layout, request: state)
    for command in ("start", "status"):
        assert main([command]) == 0
        shown = "sizes of launch templates are not enforced: no loop devices" in capsys.readouterr().out
        assert shown == bool(why)
