"""Connecting through Session Manager, with commands in place of the AWS CLI."""

from __future__ import annotations

import datetime
import shlex
import signal

import pytest

from cluster.errors import ConnectionFailedError
from cluster.ssh import session_manager
from cluster.ssh.session_manager import Tunnel

ECHO = ["cat"]
NOT_YET = "An error occurred (TargetNotConnected) when calling the StartSession operation: i-1 is not connected."


def complaining(words: str) -> list[str]:
    return ["sh", "-c", f"echo {shlex.quote(words)} >&2; exit 254"]


def read_one(through: Tunnel) -> bytes:
    try:
        through.socket.sendall(b"x")
        got = through.socket.recv(1)
    except OSError as error:
        raise ConnectionFailedError(str(error)) from None
    if not got:
        raise ConnectionFailedError("nobody answers")
    return got


def open_one(through: Tunnel) -> Tunnel:
    read_one(through)
    return through


def test_command_matches_aws_documentation() -> None:
    assert shlex.join(session_manager.command("i-0123", "eu-west-1")) == (
        "aws ssm start-session --region eu-west-1 --target i-0123 "
        "--document-name AWS-StartSSHSession --parameters portNumber=22"
    )
    assert "--region" not in session_manager.command("i-0123", "")
    assert session_manager.proxy_command("i-0123", "100%") == (
        "aws ssm start-session --region 100%% --target i-0123 "
        "--document-name AWS-StartSSHSession --parameters portNumber=22"
    )


@pytest.mark.parametrize("missing", ["aws", "session-manager-plugin"])
def test_missing_program_is_reported_with_fix(missing: str) -> None:
    with pytest.raises(ConnectionFailedError, match=f"{missing} is not installed") as caught:
        session_manager.check_programs(lambda program: None if program == missing else f"/usr/bin/{program}")
    assert "https://docs.aws.amazon.com/" in caught.value.remedy
    session_manager.check_programs(lambda program: f"/usr/bin/{program}")


def test_bytes_are_forwarded_and_closing_stops_the_command() -> None:
    through = Tunnel(ECHO)
    assert read_one(through) == b"x"
    assert through.close() == ""
    assert through._process.returncode == 0


def test_closing_kills_a_command_that_ignores_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    through = Tunnel(["sh", "-c", "trap '' TERM; echo x; while :; do sleep 0.1; done"])
    assert through.socket.recv(1) == b"x"
    wait = through._process.wait

    def wait_briefly(timeout: float | None = None) -> int:
        return wait(10.0 if timeout is None else 0.2)

    monkeypatch.setattr(through._process, "wait", wait_briefly)
    assert through.close() == ""
    assert through._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("age_s", "wait_s"), [(-7200, 300), (0, 300), (100, 200), (280, 60), (1e6, 60)])
def test_old_node_gets_only_the_time_of_a_reboot(age_s: float, wait_s: float) -> None:
    now = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
    assert session_manager.register_timeout_s(now - datetime.timedelta(seconds=age_s), now) == wait_s


def test_unknown_node_is_retried_and_wait_is_reported(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_manager, "_TELL_AFTER_S", 0.0)
    mark = tmp_path_factory.mktemp("tunnel") / "tried"
    line = f"test -e {mark} && exec cat; touch {mark}; echo {shlex.quote(NOT_YET)} >&2; exit 254"
    opened = session_manager.open_tunnel(open_one, ["sh", "-c", line], timeout_s=300.0)
    assert mark.exists()
    assert "has not registered yet; waiting up to 5 min for it" in capsys.readouterr().err
    opened.close()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (NOT_YET, "the master must be running, have the SSM agent in its image"),
        ("An error occurred (AccessDeniedException): not authorized", "request ssm:StartSession"),
        ("Unable to locate credentials", "sign in again"),
        ("something else", "run the command by hand"),
    ],
)
def test_errors_of_the_cli_are_reported_with_a_fix(words: str, remedy: str) -> None:
    with pytest.raises(ConnectionFailedError) as caught:
        session_manager.open_tunnel(read_one, complaining(words), timeout_s=0)
    assert words in str(caught.value)
    assert remedy in caught.value.remedy


def test_own_error_is_reported_if_command_did_not_fail() -> None:
    def refused(through: Tunnel) -> None:
        raise ConnectionFailedError("the master rejects your SSH key")

    with pytest.raises(ConnectionFailedError, match="rejects your SSH key"):
        session_manager.open_tunnel(refused, ECHO, timeout_s=0)
