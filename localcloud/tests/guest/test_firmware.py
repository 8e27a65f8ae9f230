"""Programs on a host detect an EC2 instance, not a container."""

from __future__ import annotations

import subprocess

import pytest

from localcloud.hosts.machine_image import GUEST


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


def test_the_firmware_names_its_maker_and_nothing_that_it_does_not_know() -> None:
    assert run("dmidecode", "--string", "system-manufacturer") == (0, "Amazon EC2\n")
    assert run("dmidecode", "-s", "chassis-asset-tag") == (0, "")
