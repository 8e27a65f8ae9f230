"""How the probe decides between KVM and emulation, with a stand-in for QEMU."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.machines import acceleration


def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = tmp_path / "qemu"
    program.write_text(f"#!/bin/bash\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(acceleration, "COMMAND", str(program))


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo '[    0.000000] Linux version 6.1.0'; exit 0", "kvm"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", "tcg"),
        ("printf 'Probing EDD (edd=off to disable)... '; exec sleep 60", "tcg"),
        ("echo 'Linux version 6.1.0'; exec sleep 60", "kvm"),
    ],
)
def test_kvm_is_taken_where_a_kernel_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: str
) -> None:
    stand_in(tmp_path, monkeypatch, script)
    monkeypatch.setattr(acceleration, "_PROBE_S", 0.5)
    assert acceleration.choose(Path("/vmlinuz"), device=tmp_path) == expected


def test_without_the_device_nothing_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch, f"touch {tmp_path}/tried; echo Linux version")
    assert acceleration.choose(Path("/vmlinuz"), device=tmp_path / "kvm") == "tcg"
    assert not (tmp_path / "tried").exists()
