"""The command line of a machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from localcloud.machines import qemu
from localcloud.machines.qemu import Disk, Hardware, command

HARDWARE = Hardware(
    kernel=Path("/images/vmlinuz"),
    initrd=Path("/images/initrd.img"),
    disks=(Disk(path=Path("/i-1/disk"), format="qcow2"), Disk(path=Path("/shown"), format="raw", read_only=True)),
    mac="02:42:0a:00:01:0a",
    memory_mib=1536,
    processors=2,
    firmware_id="ec2e1916-9099-7caf-fd21-012345abcdef",
    product="t3.medium",
)
SOCKETS = {"agent": Path("/i-1/agent"), "monitor": Path("/i-1/monitor")}


def words(accelerator: str = "tcg", **changes: object) -> list[str]:
    return command(dataclasses.replace(HARDWARE, **changes), accelerator, **SOCKETS)  # type: ignore[arg-type]


def test_firmware_is_that_of_an_instance() -> None:
    firmware = [word for word in words() if word.startswith("type=")]
    assert firmware == [
        "type=0,vendor=Amazon EC2,version=1.0",
        "type=1,manufacturer=Amazon EC2,product=t3.medium,"
        "uuid=ec2e1916-9099-7caf-fd21-012345abcdef,serial=ec2e1916-9099-7caf-fd21-012345abcdef",
    ]


def test_emulated_processor_has_avx_and_kvm_uses_host_processor() -> None:
    assert "IvyBridge,x2apic=off,tsc-deadline=off" in words()
    assert "host" in words("kvm") and "kvm" in words("kvm")
    with pytest.raises(KeyError):
        words("xen")


def test_disks_are_in_order_and_shown_disk_is_read_only() -> None:
    drives = [word for word in words() if word.startswith("file=")]
    assert drives == [
        "file=/i-1/disk,format=qcow2,if=virtio,cache=unsafe,discard=unmap",
        "file=/shown,format=raw,if=virtio,readonly=on",
    ]


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(qemu, "COMMAND", str(program))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo '[    0.000000] Linux version 6.1.0'; exit 0", "kvm"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", "tcg"),
        ("printf 'Probing EDD (edd=off to disable)... '; exec sleep 60", "tcg"),
        ("echo 'Linux version 6.1.0'; exec sleep 60", "kvm"),
    ],
)
def test_kvm_is_used_if_a_kernel_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    monkeypatch.setattr(qemu, "_PROBE_S", 0.5)
    assert qemu.accelerator(Path("/vmlinuz"), device=tmp_path) == expected


def test_kvm_is_not_tried_without_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"touch {tmp_path}/tried; echo Linux version")
    assert qemu.accelerator(Path("/vmlinuz"), device=tmp_path / "kvm") == "tcg"
    assert not (tmp_path / "tried").exists()
