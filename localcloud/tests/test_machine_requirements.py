"""All missing requirements of a machine are reported together."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud import machine_requirements
from localcloud.api.permissions import evaluator
from localcloud.errors import MissingRequirementsError
from localcloud.machine_requirements import missing


def test_every_missing_command_is_reported_with_package() -> None:
    lines = missing({"bash": "/bin/bash"}.get)
    assert "command nft not found; on Debian or Ubuntu: apt-get install nftables" in lines
    assert "command sshd not found; on Debian or Ubuntu: apt-get install openssh-server" in lines
    assert not any("bash" in line for line in lines)


def test_missing_root_rights_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(MissingRequirementsError, match="root is needed"):
        machine_requirements.check()


def test_missing_iam_evaluator_is_reported_with_install_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evaluator, "PACKAGES", tmp_path)
    with pytest.raises(MissingRequirementsError, match=r"the IAM evaluator is not in .* -m localcloud prepare"):
        machine_requirements.check()


def test_option_reports_its_missing_commands_and_devices(tmp_path: Path) -> None:
    commands = {"bash": "bash", "dnsmasq": "dnsmasq-base"}
    assert missing({"bash": "/bin/bash"}.get, commands, "--hosts vm", {tmp_path: "tun", Path("/dev/null"): "null"}) == [
        "--hosts vm: command dnsmasq not found; on Debian or Ubuntu: apt-get install dnsmasq-base",
        f"--hosts vm: {tmp_path} does not exist; load its module with: modprobe tun; a container also "
        f"needs --device {tmp_path}",
    ]


@pytest.mark.parametrize(("option", "package"), [("nfs", "bindfs"), ("machines", "qemu-system-x86")])
def test_requirements_of_option_are_checked_only_with_it(
    option: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setattr("localcloud.machine_requirements.shutil.which", lambda command, path: None)
    for given in (False, True):
        with pytest.raises(MissingRequirementsError) as found:
            machine_requirements.check(**{option: given})
        assert (f"apt-get install {package}" in str(found.value)) is given


@pytest.mark.root
def test_check_leaves_machine_unchanged() -> None:
    before = Path("/proc/self/mounts").read_text()
    machine_requirements.check(nfs=True)
    assert Path("/proc/self/mounts").read_text() == before
