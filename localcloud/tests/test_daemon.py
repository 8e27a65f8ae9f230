"""The daemon's control socket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from localcloud.cli import _parser
from localcloud.control_socket import answer_one
from localcloud.errors import LocalCloudError
from localcloud.hosts.images import Bind
from localcloud.start_options import Options, from_arguments


def test_options_survive_the_command_line(tmp_path: Path) -> None:
    bind = Bind(source=tmp_path.resolve(), target="/opt/runtime")
    options = Options(
        name="lc1",
        mount=(bind,),
        efs_size="64m",
        image="debian-12",
        reach=("a.example.org", "b"),
        packages=True,
        nfs_client=True,
        cpus=0.25,
        link_mbit=1000,
        api_faults=0,
    )
    machines = Options(name="lc2", hosts="vm", image="debian-13", efs_size="64m")
    assert from_arguments(_parser().parse_args(["daemon", *machines.to_argv()])) == machines
    assert from_arguments(_parser().parse_args(["daemon", *options.to_argv()])) == options
    assert from_arguments(_parser().parse_args(["daemon", *Options(name="lc0").to_argv()])) == Options(name="lc0")


def test_machines_boot_debian_by_default() -> None:
    assert from_arguments(_parser().parse_args(["start", "--hosts", "vm"])).image == "debian-12"
    assert from_arguments(_parser().parse_args(["start"])).image == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--hosts", "docker"], "--hosts 'docker': must be namespace or vm"),
        (
            ["--hosts", "vm", "--nfs-client"],
            "--nfs-client cannot be combined with --hosts vm: machines already use a real NFS client and server",
        ),
        (["--hosts", "vm", "--packages"], "machines have only apt's package index"),
        (
            ["--hosts", "vm", "--image", "debian-12-bare"],
            "--image debian-12-bare cannot be combined .* with the AWS CLI",
        ),
        (["--hosts", "vm", "--cpus", "1"], "machines have their own processors"),
        (["--cpus", "0.01"], "--cpus '0.01': must be a number from 0.05 to 999"),
        (["--cpus", "1e3"], "--cpus '1e3': must be a number"),
        (["--cpus", "9999"], "--cpus '9999': must be a number from 0.05 to 999"),
        (["--cpus", "-1"], "must be a number"),
        (["--link-mbit", "1.5"], "--link-mbit '1.5': must be a whole number from 1 to 999999"),
    ],
)
def test_unsupported_host_options_are_rejected_at_start(words: list[str], why: str) -> None:
    with pytest.raises(LocalCloudError, match=why):
        from_arguments(_parser().parse_args(["start", *words]))


def test_request_is_answered_by_one_line() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b'{"do": "status"}\n')
        answer_one(theirs, lambda request: {"done": request["do"]})
        assert ours.recv(100) == b'{"done": "status"}\n'


@pytest.mark.parametrize("said", [b"", b"nonsense\n", b"[1]\n"])
def test_disconnects_and_garbage_raise_an_error_that_the_daemon_catches(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(said)
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(ValueError):  # json's message
            answer_one(theirs, lambda request: {})
