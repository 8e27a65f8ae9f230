"""A booting node installs packages on Amazon Linux 2023, with recorded answers of dnf.

The answers are from dnf 4 on new instances, recorded in public issues. The lock is in
masterpointio/terraform-aws-tailscale#44 and aws-games/cloud-game-development-toolkit#192. The lost download is in
aws/aws-cdk#36717 and amazonlinux/amazon-linux-2023#397 (the Systems Manager agent updates itself while the boot script
runs). The unknown package is in OpenSCAP/scap-workbench#313.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.stacks.boot.nodelab import Lab, Node

LOCKED = """\
RPM: error: can't create transaction lock on /var/lib/rpm/.rpm.lock (Resource temporarily unavailable)
The downloaded packages were saved in cache until the next successful transaction.
You can remove cached packages by executing 'yum clean packages'.
Error: Could not run transaction."""
LOST = (
    "[Errno 2] No such file or directory: "
    "'/var/cache/dnf/amazonlinux-98c6f4d1ac0baa66/packages/iptables-libs-1.8.8-3.amzn2023.0.2.aarch64.rpm'"
)
UNKNOWN = "No match for argument: python3.13\nError: Unable to find a match: python3.13"


def node_without_ensurepip(lab: Lab, *answers: str) -> Node:
    """Return a node with a Python that lacks a package. Its dnf fails once with each answer, then installs the package.

    An empty answer means that dnf prints nothing, as with `-q`.
    """
    write(
        lab.commands / "python3.13", 'case $* in *ensurepip*) [ -e "$DEEPCDK_ROOT/installed" ] ;; *) echo 3.13 ;; esac'
    )
    for number, answer in enumerate(answers):
        (lab.folder / f"answer{number}").write_text(answer)
    write(
        lab.commands / "dnf",
        f"""
echo "$*" >>"$DEEPCDK_ROOT/dnf"
answer={lab.folder}/answer$(($(wc -l <"$DEEPCDK_ROOT/dnf") - 1))
[ ! -e "$answer" ] || {{ cat "$answer" >&2; exit 1; }}
touch "$DEEPCDK_ROOT/installed\"""",
    )
    write(lab.commands / "sleep", "exit 0")
    return lab.node("worker", 1)


def write(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_missing_package_is_installed_by_dnf_without_prompts(lab: Lab) -> None:
    node = node_without_ensurepip(lab)
    status, said = node.boot()
    assert status == 0, said
    assert node.text("dnf") == "install -y -q python3.13\n"
    assert "dnf install" not in said


@pytest.mark.parametrize(
    ("version", "installed"), [("13", ""), ("14", "install -y -q gcc13-c++\n"), ("15.2.0", "gcc13")]
)
def test_older_compiler_is_installed_if_too_new_for_horovod(lab: Lab, version: str, installed: str) -> None:
    node = node_without_ensurepip(lab)
    write(lab.commands / "python3.13", "echo 3.13")
    write(lab.commands / "g++", f"echo {version}")
    status, said = node.boot()
    assert status == 0, said
    assert installed in (node.text("dnf") if installed else "")


def test_workers_get_headers_of_their_python(lab: Lab) -> None:
    node = node_without_ensurepip(lab)
    missing = 'case $* in *Python.h*) [ -e "$DEEPCDK_ROOT/installed" ] ;; *) echo 3.13 ;; esac'
    write(lab.commands / "python3.13", missing)
    status, said = node.boot()
    assert status == 0, said
    assert node.text("dnf") == "install -y -q python3.13-devel\n"


def test_apt_updates_lists_once_and_after_change_of_sources(lab: Lab) -> None:
    write(lab.commands / "apt-get", 'echo "$1 $6" >>"$DEEPCDK_ROOT/apt"')
    sources = lab.folder / f"i-{1:017x}" / "etc/apt"
    commands = (
        "install_package one one1",
        "install_package two two1",
        f"touch {sources}/new.list",
        "install_package 3 3",
    )
    node = lab.node("worker", 1, commands=commands)
    sources.mkdir()
    status, said = node.boot()
    assert status == 0, said
    assert node.text("apt").split() == ["update", "install", "one1", "install", "two1", "update", "install", "3"]


@pytest.mark.parametrize("fails", ["update", "install", "both"])
def test_apt_updates_lists_again_if_source_failed_and_package_is_missing(lab: Lab, fails: str) -> None:
    """apt-get update exits with 0 despite unreachable sources, unless APT::Update::Error-Mode=any is set."""
    once = '[ $(grep -c "^$1" "$DEEPCDK_ROOT/apt") -gt 1 ] || exit 100'
    update = f'case "$*" in *APT::Update::Error-Mode=any*) {once} ;; esac' if fails != "install" else ":"
    install = once if fails != "update" else ":"
    body = f'echo "$1 $6" >>"$DEEPCDK_ROOT/apt"\ncase $1 in update) {update} ;; install) {install} ;; esac'
    write(lab.commands / "apt-get", body)
    write(lab.commands / "sleep", "exit 0")
    node = lab.node("worker", 1, commands=("install_package one one1", "install_package two two1"))
    (lab.folder / f"i-{1:017x}" / "etc/apt").mkdir()
    status, said = node.boot()
    calls = ["update" if line.startswith("update") else line for line in node.text("apt").splitlines()]
    expected = {
        "update": (0, ["update", "install one1", "install two1"]),
        "install": (1, ["update", "install one1"]),
        "both": (0, ["update", "install one1", "update", "install one1", "install two1"]),
    }
    assert (status, calls) == expected[fails], said


def test_unreachable_source_of_apt_finally_fails_boot(lab: Lab) -> None:
    write(lab.commands / "apt-get", 'echo "$1" >>"$DEEPCDK_ROOT/apt"; exit 100')
    node = lab.node("worker", 1, commands=("install_package one one1",))
    (lab.folder / f"i-{1:017x}" / "etc/apt").mkdir()
    status, _ = node.boot(DEEPCDK_PACKAGES_TIMEOUT_S="0")
    assert status != 0
    assert node.text("apt").split() == ["update", "install"]
    assert "--success false --reason boot_commands: install_package one one1 failed" in node.text("signals")


def node_without_aws(lab: Lab) -> Node:
    node = node_without_ensurepip(lab, UNKNOWN)
    write(lab.commands / "python3.13", "echo 3.13")
    (lab.commands / "aws").rename(lab.commands / "aws.snap")
    return node


@pytest.mark.skipif(bool(shutil.which("snap")), reason="this machine has snap")
def test_boot_without_aws_cli_package_and_snap_reports_the_package(lab: Lab) -> None:
    node = node_without_aws(lab)
    status, said = node.boot()
    assert status != 0
    assert f"dnf install awscli-2: {UNKNOWN}" in said
    assert "cannot install the AWS CLI; use an image that contains it" in said
    assert "snap" not in said
    assert "--success false --reason installing missing commands failed" in node.text("signals")


@pytest.mark.parametrize("snap", [True, False])
def test_aws_cli_is_installed_as_snap_without_package(lab: Lab, snap: bool) -> None:
    """Ubuntu 24.04 dropped the package `awscli`."""
    node = node_without_aws(lab)
    write(lab.commands / "snap", f'echo "$*" >>"$DEEPCDK_ROOT/snap"; {"exit 0" if snap else "exit 1"}')
    link = f"*/usr/local/bin/aws) mv {lab.commands}/aws.snap {lab.commands}/aws; exit ;;"
    write(lab.commands / "ln", f'case $* in {link} esac; exec /bin/ln "$@"')
    status, said = node.boot()
    assert node.text("dnf") == "install -y -q awscli-2\n"
    assert node.text("snap") == "install --classic aws-cli\n"
    assert (status == 0) is snap, said
    if not snap:
        assert "--success false --reason installing missing commands failed" in node.text("signals")


def test_master_gets_no_compiler(lab: Lab) -> None:
    node_without_ensurepip(lab)
    write(lab.commands / "python3.13", "case $* in *Python.h*) exit 1 ;; *) echo 3.13 ;; esac")
    write(lab.commands / "g++", "echo 14")
    master = lab.node("master", 2)
    status, said = master.boot()
    assert status == 0, said
    assert master.text("dnf") == ""


@pytest.mark.parametrize("answer", [LOCKED, LOST], ids=["the database is locked", "the download is gone"])
def test_dnf_is_retried_if_locked_by_another_program(lab: Lab, answer: str) -> None:
    node = node_without_ensurepip(lab, answer, answer)
    status, said = node.boot()
    assert status == 0, said
    assert node.text("dnf").count("\n") == 3
    assert said.count(f"deepcdk: dnf install python3.13: {answer}\n") == 2
    assert "--success true --reason ready" in node.text("signals")


def test_nonexistent_package_fails_immediately_and_is_reported(lab: Lab) -> None:
    node = node_without_ensurepip(lab, UNKNOWN, UNKNOWN)
    status, said = node.boot()
    assert status != 0
    assert node.text("dnf").count("\n") == 1
    assert UNKNOWN in said
    assert "--success false --reason making directories failed with exit status 1" in node.text("signals")


def test_lock_never_released_finally_fails_boot(lab: Lab) -> None:
    node = node_without_ensurepip(lab, *[LOCKED] * 9)
    status, said = node.boot(DEEPCDK_PACKAGES_TIMEOUT_S="0")
    assert status != 0
    assert node.text("dnf").count("\n") == 1
    assert "can't create transaction lock" in said
    assert "--success false" in node.text("signals")
