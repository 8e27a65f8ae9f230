"""Facts about host keys on a console: only whole and consistent keys between the marks count."""

from __future__ import annotations

import base64

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.aws.client import Aws
from cluster.errors import ConnectionFailedError
from cluster.ssh import host_keys
from cluster.ssh.host_keys import parse_console

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEP8ZbX9SpgY2m2k3E2LWOiRNF5jDYA7sYUBiL3VZ3Qm"
ECDSA = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMwCT31DpSCyg7pvDvYk0BQZ6m0LkUNFI6cmBnFB"
    "RkZ2cKHPY1ZOh6SNYHRQd8hjnS6X1q7nLiyZJ8P3wV9mz0I="
)
CONSOLE = f"""\
[    0.000000] Linux version 6.1.0 (mockbuild@ip-10-0-0-1)
[   11.522017] cloud-init[2210]: Generating public/private ed25519 key pair.
-----BEGIN SSH HOST KEY FINGERPRINTS-----
256 SHA256:AAAAC3NzaC1lZDI1NTE5AAAAI root@ip-10-0-0-12 (ED25519)
-----END SSH HOST KEY FINGERPRINTS-----
-----BEGIN SSH HOST KEY KEYS-----
{ECDSA} root@ip-10-0-0-12
{ED25519} root@ip-10-0-0-12
-----END SSH HOST KEY KEYS-----
[   12.001122] cloud-init[2210]: Cloud-init v. 22.2.2 finished
Amazon Linux 2023
ip-10-0-0-12 login: """


def keys_of(text: str) -> list[str]:
    return [str(key) for key in parse_console(text)]


def test_keys_are_read_from_a_real_console() -> None:
    assert keys_of(CONSOLE) == [ECDSA, ED25519]


def test_prefixes_and_carriage_returns_of_a_serial_console_are_passed_over() -> None:
    line = f"[   11.9] cloud-init[22]: {ED25519} root@x"
    block = f"-----BEGIN SSH HOST KEY KEYS-----\r\n{line}\r\n-----END SSH HOST KEY KEYS-----"
    assert keys_of(block) == [ED25519]


def test_the_last_boot_counts() -> None:
    later = CONSOLE.replace(ED25519, "").replace(ECDSA, "")
    other = ED25519[:-2] + "Qn"
    again = CONSOLE + CONSOLE.replace(ED25519, other).replace(f"{ECDSA} root@ip-10-0-0-12\n", "")
    assert keys_of(again) == [other]
    assert keys_of(CONSOLE + later) == [ECDSA, ED25519]  # an empty block is no news


def test_a_key_outside_the_marks_is_not_trusted() -> None:
    assert keys_of(f"{ED25519}\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        CONSOLE[: CONSOLE.index("-----END SSH HOST KEY KEYS")],  # still being printed
        CONSOLE.replace(ED25519, ED25519[:-7]).replace(ECDSA, ""),  # cut within the Base64
        CONSOLE.replace("ssh-ed25519 AAAAC3", "ssh-rsa AAAAC3").replace(ECDSA, ""),  # the name and the key differ
        CONSOLE.replace(ED25519, "ssh-ed25519 ????").replace(ECDSA, "ssh-ed25519"),
        CONSOLE.replace(ED25519, "ssh-ed25519 AAA=").replace(ECDSA, ""),  # shorter than a length
        CONSOLE.replace(ED25519, "ssh-ed25519 /////3NzaC1lZDI1NTE5").replace(ECDSA, ""),  # a length beyond its end
    ],
)
def test_what_is_malformed_yields_no_key(text: str) -> None:
    assert keys_of(text) == []


@given(st.text())
def test_no_text_between_the_marks_makes_it_fail(text: str) -> None:
    parse_console(f"-----BEGIN SSH HOST KEY KEYS-----\n{text}\n-----END SSH HOST KEY KEYS-----")


@given(st.binary(max_size=64))
def test_only_a_key_that_names_its_own_algorithm_counts(blob: bytes) -> None:
    line = f"ssh-ed25519 {base64.b64encode(blob).decode()}"
    found = parse_console(f"-----BEGIN SSH HOST KEY KEYS-----\n{line}\n-----END SSH HOST KEY KEYS-----")
    assert all(key.blob.startswith(b"\0\0\0\x0bssh-ed25519") for key in found)


def test_the_console_is_read_until_it_shows_keys(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    key = paramiko.ECDSAKey.generate()
    line = f"{key.get_name()} {key.get_base64()} root@x"
    block = f"-----BEGIN SSH HOST KEY KEYS-----\n{line}\n-----END SSH HOST KEY KEYS-----"
    consoles = ["", "booting", block]
    aws, asked = Aws(), list[tuple[Aws, str]]()

    def read(asked_aws: Aws, instance_id: str) -> str:
        asked.append((asked_aws, instance_id))
        return consoles.pop(0)

    monkeypatch.setattr(host_keys, "read_console", read)
    found = host_keys.read_host_keys(aws, "i-0aa")
    assert ([host_key.blob for host_key in found], slept) == ([key.asbytes()], [1.0, 1.0])
    assert asked == [(aws, "i-0aa")] * 3


def test_a_console_that_never_shows_keys_is_an_error(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    monkeypatch.setattr(host_keys, "read_console", lambda *_: "booting")
    with pytest.raises(ConnectionFailedError, match="i-0aa shows no SSH host keys") as caught:
        host_keys.read_host_keys(Aws(), "i-0aa")
    assert caught.value.where == "EC2 GetConsoleOutput"
    assert caught.value.remedy == (
        "wait for the end of its boot and repeat; a node prints them at each boot and once an hour, "
        "and one that does not is to be replaced"
    )
    assert sum(slept) == 60
