"""Host keys: only complete keys from the console count, and a kept key never replaces a changed one."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.aws.client import Aws
from cluster.errors import ConnectionFailedError
from cluster.ssh import host_keys
from cluster.ssh.host_keys import BEGIN, END, HostKey, KeptHostKeys, find_change, parse_console, write_private

ED25519_LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEP8ZbX9SpgY2m2k3E2LWOiRNF5jDYA7sYUBiL3VZ3Qm"
ECDSA_LINE = (
    "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBMwCT31DpSCyg7pvDvYk0BQZ6m0LkUNFI6cmBnFB"
    "RkZ2cKHPY1ZOh6SNYHRQd8hjnS6X1q7nLiyZJ8P3wV9mz0I="
)
CONSOLE = f"""\
[    0.000000] Linux version 6.1.0 (mockbuild@ip-10-0-0-1)
[   11.522017] cloud-init[2210]: Generating public/private ed25519 key pair.
-----BEGIN SSH HOST KEY FINGERPRINTS-----
256 SHA256:AAAAC3NzaC1lZDI1NTE5AAAAI root@ip-10-0-0-12 (ED25519_LINE)
-----END SSH HOST KEY FINGERPRINTS-----
-----BEGIN SSH HOST KEY KEYS-----
{ECDSA_LINE} root@ip-10-0-0-12
{ED25519_LINE} root@ip-10-0-0-12
-----END SSH HOST KEY KEYS-----
[   12.001122] cloud-init[2210]: Cloud-init v. 22.2.2 finished
Amazon Linux 2023
ip-10-0-0-12 login: """


def keys_of(text: str) -> list[str]:
    return [str(key) for key in parse_console(text)]


def test_keys_are_read_from_a_real_console() -> None:
    assert keys_of(CONSOLE) == [ECDSA_LINE, ED25519_LINE]


def test_last_boot_counts() -> None:
    later = CONSOLE.replace(ED25519_LINE, "").replace(ECDSA_LINE, "")
    other = ED25519_LINE[:-2] + "Qn"
    again = CONSOLE + CONSOLE.replace(ED25519_LINE, other).replace(f"{ECDSA_LINE} root@ip-10-0-0-12\n", "")
    assert keys_of(again) == [other]
    assert keys_of(CONSOLE + later) == [ECDSA_LINE, ED25519_LINE]  # an empty block changes nothing


@pytest.mark.parametrize(
    "text",
    [
        "",
        CONSOLE[: CONSOLE.index("-----END SSH HOST KEY KEYS")],  # still being printed
        CONSOLE.replace(ED25519_LINE, ED25519_LINE[:-7]).replace(ECDSA_LINE, ""),  # cut within the Base64
        CONSOLE.replace("ssh-ed25519 AAAAC3", "ssh-rsa AAAAC3").replace(ECDSA_LINE, ""),  # the name and the key differ
        CONSOLE.replace(ED25519_LINE, "ssh-ed25519 ????").replace(ECDSA_LINE, "ssh-ed25519"),
        CONSOLE.replace(ED25519_LINE, "ssh-ed25519 AAA=").replace(ECDSA_LINE, ""),  # shorter than a length field
        CONSOLE.replace(ED25519_LINE, "ssh-ed25519 /////3NzaC1lZDI1NTE5").replace(ECDSA_LINE, ""),
    ],
)
def test_malformed_console_has_no_key(text: str) -> None:
    assert keys_of(text) == []


def test_console_is_read_until_it_shows_keys(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
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


def test_console_without_keys_is_an_error(monkeypatch: pytest.MonkeyPatch, slept: list[float]) -> None:
    monkeypatch.setattr(host_keys, "read_console", lambda *_: "booting")
    with pytest.raises(ConnectionFailedError, match="i-0aa shows no SSH host keys") as caught:
        host_keys.read_host_keys(Aws(), "i-0aa")
    assert caught.value.where == "EC2 GetConsoleOutput"
    assert caught.value.remedy == (
        "wait until it has booted, then repeat. A node prints its host keys at each boot and once an hour. Replace a "
        "worker that does not with `fab replace`; terminate such a master in EC2, and the Auto Scaling group starts a "
        "new one"
    )
    assert sum(slept) == 60


ID, OTHER_ID = "i-0123456789abcdef0", "i-0fedcba9876543210"


def key(algorithm: str, content: bytes) -> HostKey:
    """Return a key in SSH's wire format."""
    name = algorithm.encode()
    return HostKey(algorithm=algorithm, blob=len(name).to_bytes(4, "big") + name + content)


ED25519, ECDSA = key("ssh-ed25519", b"one"), key("ecdsa-sha2-nistp256", b"two")
OTHER = key("ssh-ed25519", b"other")


@pytest.fixture
def kept(tmp_path: Path) -> KeptHostKeys:
    return KeptHostKeys.in_home(tmp_path, account="123456789012", region="us-east-1")


@pytest.fixture
def consoles(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the consoles by instance id; the test fills them."""
    texts: dict[str, str] = {}
    monkeypatch.setattr(host_keys, "read_console", lambda _, instance_id: texts.get(instance_id, ""))
    return texts


def console(*keys: HostKey) -> str:
    return "\n".join(["booting", BEGIN, *(f"{each} root@node" for each in keys), END, "login: "])


def test_keys_of_the_console_are_kept_and_used_when_it_has_none(
    kept: KeptHostKeys, consoles: dict[str, str], slept: list[float]
) -> None:
    consoles[ID] = console(ED25519, ECDSA)
    assert kept.identify(Aws(), ID) == (ED25519, ECDSA)
    consoles[ID] = "64 KB of something else"
    assert kept.identify(Aws(), ID) == (ED25519, ECDSA)
    assert slept == []


def test_file_is_private_and_readable_by_openssh(kept: KeptHostKeys, consoles: dict[str, str], tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "host"], check=True)
    made = HostKey.parse((tmp_path / "host.pub").read_text())
    assert made is not None
    consoles[ID] = console(made)
    before = os.umask(0)
    try:
        kept.identify(Aws(), ID)
    finally:
        os.umask(before)
    path = tmp_path / ".local/state/deepcdk/host-keys/123456789012/us-east-1" / ID
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listed = subprocess.run(["ssh-keygen", "-lF", ID, "-f", path], capture_output=True, text=True, check=True).stdout
    assert made.fingerprint.removeprefix("ssh-ed25519 ") in listed


def test_keys_are_never_used_for_another_instance_account_or_region(
    kept: KeptHostKeys, consoles: dict[str, str], slept: list[float], tmp_path: Path
) -> None:
    consoles[ID] = console(ED25519)
    kept.identify(Aws(), ID)
    consoles.clear()
    elsewhere = [
        KeptHostKeys.in_home(tmp_path, account="210987654321", region="us-east-1"),
        KeptHostKeys.in_home(tmp_path, account="123456789012", region="eu-west-1"),
    ]
    for files, instance_id in ((kept, OTHER_ID), *((files, ID) for files in elsewhere)):
        with pytest.raises(ConnectionFailedError, match="shows no SSH host keys"):
            files.identify(Aws(), instance_id)
    # A file that somebody has renamed is not accepted either.
    kept.path(ID).rename(kept.path(OTHER_ID))
    with pytest.raises(ConnectionFailedError, match="damaged") as caught:
        kept.identify(Aws(), OTHER_ID)
    assert caught.value.where == str(kept.path(OTHER_ID))
    assert slept


def test_changed_key_is_rejected_with_both_fingerprints_and_fix(kept: KeptHostKeys, consoles: dict[str, str]) -> None:
    consoles[ID] = console(ED25519, ECDSA)
    kept.identify(Aws(), ID)
    consoles[ID] = console(OTHER, ECDSA)
    with pytest.raises(ConnectionFailedError, match=f"SSH host key of {ID} HAS CHANGED") as caught:
        kept.identify(Aws(), ID)
    assert OTHER.fingerprint in caught.value.what
    assert ED25519.fingerprint in caught.value.what
    assert (caught.value.where, "remove this file" in caught.value.remedy) == (str(kept.path(ID)), True)
    assert kept.read(ID) == (ED25519, ECDSA)
    # The suggested fix works.
    kept.path(ID).unlink()
    assert kept.identify(Aws(), ID) == (OTHER, ECDSA)


def test_additional_algorithm_is_no_change_but_only_others_are() -> None:
    assert find_change((ED25519,), (ECDSA, ED25519)) is None
    assert find_change((ED25519, ECDSA), (ED25519,)) is None
    assert find_change((), (ED25519,)) is None
    assert find_change((ED25519,), ()) is None
    assert find_change((ED25519,), (ECDSA,)) == (ED25519, ECDSA)
    assert find_change((ECDSA, ED25519), (ECDSA, OTHER)) == (ED25519, OTHER)


@given(content=st.binary(max_size=40))
def test_any_key_is_read_back(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    files = KeptHostKeys(folder=tmp_path_factory.mktemp("kept"))
    files.keep(ID, (key("ssh-ed25519", content), ECDSA))
    assert files.read(ID) == (key("ssh-ed25519", content), ECDSA)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", f"{ID} ssh-ed25519 AAAA\n".encode(), f"{ID}\n".encode()])
def test_damaged_file_is_rejected_with_fix(kept: KeptHostKeys, damage: bytes) -> None:
    kept.folder.mkdir(parents=True)
    kept.path(ID).write_bytes(damage)
    with pytest.raises(ConnectionFailedError, match="damaged") as caught:
        kept.read(ID)
    assert "remove the file" in caught.value.remedy


def test_keys_that_cannot_be_stored_cause_a_warning_but_are_used(
    kept: KeptHostKeys, consoles: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> bool:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(host_keys, "write_private", full)
    consoles[ID] = console(ED25519)
    assert kept.identify(Aws(), ID) == (ED25519,)
    assert f"host keys of {ID} could not be stored: No space left" in capsys.readouterr().err


def test_unreadable_file_is_reported(kept: KeptHostKeys) -> None:
    kept.path(ID).mkdir(parents=True)
    with pytest.raises(ConnectionFailedError, match=f"stored SSH host keys of {ID} cannot be read") as caught:
        kept.read(ID)
    assert caught.value.where == str(kept.path(ID))


def test_private_files_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "deepcdk" / "x.config"
    assert [write_private(path, text) for text in ("text", "text", "other")] == [True, False, True]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [entry.name for entry in path.parent.iterdir()] == ["x.config"]
