"""Facts about the key pair: the user's public key is imported, and the private half is never read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster.aws.client import Aws
from cluster.deploy import key_pair
from cluster.errors import DeepcdkError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def test_the_public_key_is_found_beside_the_private_one(home: Path) -> None:
    (home / ".ssh" / "id_rsa.pub").write_text("ssh-rsa A")
    assert key_pair.find_public_key(home).name == "id_rsa.pub"
    (home / ".ssh" / "id_ed25519.pub").write_text("ssh-ed25519 A")
    assert key_pair.find_public_key(home).name == "id_ed25519.pub"
    (home / "mine.pub").write_text("ssh-ed25519 A")
    assert key_pair.find_public_key(home, str(home / "mine")) == home / "mine.pub"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ecdsa-sha2-nistp256 A me", "EC2 imports no key of type ecdsa-sha2-nistp256"),
        ("sk-ssh-ed25519@openssh.com A", "EC2 imports no key of type sk-ssh-ed25519@openssh.com"),
        ("ssh-dss A", "EC2 imports no key of type ssh-dss"),
        ("ssh-ed25519", "no public key in OpenSSH's format"),
        ("-----BEGIN PUBLIC KEY-----", "no public key in OpenSSH's format"),
        ("", "no public key in OpenSSH's format"),
    ],
)
def test_a_key_of_a_kind_that_ec2_does_not_import_is_refused_before_the_call(home: Path, text: str, said: str) -> None:
    (home / "mine.pub").write_text(text)
    with pytest.raises(DeepcdkError, match=said) as caught:
        key_pair.find_public_key(home, str(home / "mine"))
    assert caught.value.where == str(home / "mine.pub")
    assert "ssh-keygen -t ed25519" in caught.value.remedy


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def test_a_key_is_imported_once(aws: Aws, home: Path) -> None:
    make_key(home / "key").unlink()
    assert not key_pair.describe(aws, "deepcdk")
    assert key_pair.import_public_key(aws, "deepcdk", home / "key.pub")
    assert key_pair.describe(aws, "deepcdk")
    described = key_pair.describe(aws, "deepcdk")
    assert not key_pair.import_public_key(aws, "deepcdk", make_key(home / "other").with_suffix(".pub"))
    assert key_pair.describe(aws, "deepcdk") == described, "the one that was there stays"


def compared(aws: Aws, home: Path, key: str = "") -> key_pair.Match:
    described = key_pair.describe(aws, "deepcdk")
    assert described is not None
    return key_pair.match(described, key_pair.own_keys(home, key))


def test_the_users_own_key_pair_is_recognized_whatever_its_comment(aws: Aws, home: Path) -> None:
    public = make_key(home / ".ssh" / "id_ed25519").with_suffix(".pub")
    key_pair.import_public_key(aws, "deepcdk", public)
    public.write_text(" ".join([*public.read_text().split()[:2], "another comment"]))
    match = compared(aws, home)
    assert (match.found, match.differs) == (str(public), False)


def test_a_key_that_is_given_is_the_only_one_that_counts_and_needs_no_public_half(aws: Aws, home: Path) -> None:
    make_key(home / ".ssh" / "id_ed25519")
    key_pair.import_public_key(aws, "deepcdk", home / ".ssh" / "id_ed25519.pub")
    other = make_key(home / "other")
    assert compared(aws, home, str(other)).differs
    Path(f"{other}.pub").unlink()
    assert compared(aws, home, str(other)).differs
    (home / ".ssh" / "id_ed25519.pub").unlink()
    assert not compared(aws, home, str(home / ".ssh" / "id_ed25519")).differs


def test_another_key_is_told_with_both_sides_and_what_to_do(aws: Aws, home: Path) -> None:
    key_pair.import_public_key(aws, "deepcdk", make_key(home / "theirs").with_suffix(".pub"))
    make_key(home / ".ssh" / "id_ed25519")
    match = compared(aws, home)
    assert match.differs
    text = str(key_pair.OtherKeyError(match))
    assert "key pair deepcdk does not hold a key of yours" in text
    assert match.theirs in text
    assert str(home / ".ssh" / "id_ed25519.pub") in text
    assert "key_name" in text


def test_what_ec2_does_not_show_is_not_called_different(home: Path) -> None:
    match = key_pair.match({"KeyName": "old", "KeyFingerprint": "aa:bb"}, {"~/.ssh/a.pub": "ssh-ed25519 A"})
    assert (match.theirs, match.differs) == ("", False)
