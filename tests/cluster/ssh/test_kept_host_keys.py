"""Facts about kept host keys: an instance's own, used without a console, and never in place of changed ones."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.aws.client import Aws
from cluster.errors import ConnectionFailedError
from cluster.ssh import host_keys, kept_host_keys
from cluster.ssh.host_keys import BEGIN, END, HostKey
from cluster.ssh.kept_host_keys import KeptHostKeys, find_change

ID, OTHER_ID = "i-0123456789abcdef0", "i-0fedcba9876543210"


def key(algorithm: str, content: bytes) -> HostKey:
    """Return a key in SSH's wire format."""
    name = algorithm.encode()
    return HostKey(algorithm=algorithm, blob=len(name).to_bytes(4, "big") + name + content)


ED25519, ECDSA = key("ssh-ed25519", b"one"), key("ecdsa-sha2-nistp256", b"two")
OTHER = key("ssh-ed25519", b"other")


@pytest.fixture
def kept(tmp_path: Path) -> KeptHostKeys:
    return KeptHostKeys.below(tmp_path, account="123456789012", region="us-east-1")


@pytest.fixture
def consoles(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the consoles by instance id, to be filled."""
    texts: dict[str, str] = {}
    for module in (host_keys, kept_host_keys):
        monkeypatch.setattr(module, "read_console", lambda _, instance_id: texts.get(instance_id, ""))
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


def test_the_file_is_the_owners_alone_and_openssh_reads_it(
    kept: KeptHostKeys, consoles: dict[str, str], tmp_path: Path
) -> None:
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
        KeptHostKeys.below(tmp_path, account="210987654321", region="us-east-1"),
        KeptHostKeys.below(tmp_path, account="123456789012", region="eu-west-1"),
    ]
    for files, instance_id in ((kept, OTHER_ID), *((files, ID) for files in elsewhere)):
        with pytest.raises(ConnectionFailedError, match="shows no SSH host keys"):
            files.identify(Aws(), instance_id)
    # Nor where somebody has renamed the file.
    kept.path(ID).rename(kept.path(OTHER_ID))
    with pytest.raises(ConnectionFailedError, match="damaged") as caught:
        kept.identify(Aws(), OTHER_ID)
    assert caught.value.where == str(kept.path(OTHER_ID))
    assert slept


def test_a_changed_key_is_refused_with_both_fingerprints_and_the_remedy(
    kept: KeptHostKeys, consoles: dict[str, str]
) -> None:
    consoles[ID] = console(ED25519, ECDSA)
    kept.identify(Aws(), ID)
    consoles[ID] = console(OTHER, ECDSA)
    with pytest.raises(ConnectionFailedError, match=f"SSH host key of {ID} HAS CHANGED") as caught:
        kept.identify(Aws(), ID)
    assert OTHER.fingerprint in caught.value.what
    assert ED25519.fingerprint in caught.value.what
    assert (caught.value.where, "remove this file" in caught.value.remedy) == (str(kept.path(ID)), True)
    assert kept.read(ID) == (ED25519, ECDSA)
    # The remedy works.
    kept.path(ID).unlink()
    assert kept.identify(Aws(), ID) == (OTHER, ECDSA)


def test_a_key_of_a_further_algorithm_is_no_change_and_keys_of_others_alone_are() -> None:
    assert find_change((ED25519,), (ECDSA, ED25519)) is None
    assert find_change((ED25519, ECDSA), (ED25519,)) is None
    assert find_change((), (ED25519,)) is None
    assert find_change((ED25519,), ()) is None
    assert find_change((ED25519,), (ECDSA,)) == (ED25519, ECDSA)
    assert find_change((ECDSA, ED25519), (ECDSA, OTHER)) == (ED25519, OTHER)


@given(content=st.binary(max_size=40))
def test_any_key_comes_back_from_its_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    files = KeptHostKeys(folder=tmp_path_factory.mktemp("kept"))
    files.keep(ID, (key("ssh-ed25519", content), ECDSA))
    assert files.read(ID) == (key("ssh-ed25519", content), ECDSA)


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", f"{ID} ssh-ed25519 AAAA\n".encode(), f"{ID}\n".encode()])
def test_a_damaged_file_is_refused_with_its_remedy(kept: KeptHostKeys, damage: bytes) -> None:
    kept.folder.mkdir(parents=True)
    kept.path(ID).write_bytes(damage)
    with pytest.raises(ConnectionFailedError, match="damaged") as caught:
        kept.read(ID)
    assert "remove the file" in caught.value.remedy


def test_keys_that_cannot_be_kept_are_warned_of_and_count_all_the_same(
    kept: KeptHostKeys, consoles: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> bool:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(kept_host_keys, "write_private", full)
    consoles[ID] = console(ED25519)
    assert kept.identify(Aws(), ID) == (ED25519,)
    assert f"host keys of {ID} were not kept: [Errno 28] No space left" in capsys.readouterr().err


def test_a_file_that_cannot_be_read_is_named(kept: KeptHostKeys) -> None:
    kept.path(ID).mkdir(parents=True)
    with pytest.raises(ConnectionFailedError, match=f"kept SSH host keys of {ID} cannot be read") as caught:
        kept.read(ID)
    assert caught.value.where == str(kept.path(ID))


def test_a_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "host"], check=True)
    listed = subprocess.run(["ssh-keygen", "-lf", tmp_path / "host.pub"], capture_output=True, text=True, check=True)
    algorithm, encoded = (tmp_path / "host.pub").read_text().split()[:2]
    made = HostKey(algorithm=algorithm, blob=base64.b64decode(encoded))
    assert made.fingerprint == f"ecdsa-sha2-nistp256 {listed.stdout.split()[1]}"
