"""Programs on a host detect an EC2 instance, not a container."""

from __future__ import annotations

import subprocess

import pytest

from localcloud.hosts.this_machine_image import GUEST


def run(program: str, *words: str) -> tuple[int, str]:
    done = subprocess.run([GUEST / program, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), (0, "amazon\n")),
        (("--quiet",), (0, "")),
        (("--container",), (1, "none\n")),
        (("--quiet", "--container"), (1, "")),
    ],
)
def test_systemd_detects_a_virtual_machine(words: tuple[str, ...], answer: tuple[int, str]) -> None:
    assert run("systemd-detect-virt", *words) == answer


def test_firmware_reports_vendor_and_nothing_unknown() -> None:
    assert run("dmidecode", "--string", "system-manufacturer") == (0, "Amazon EC2\n")
    assert run("dmidecode", "-s", "chassis-asset-tag") == (0, "")
