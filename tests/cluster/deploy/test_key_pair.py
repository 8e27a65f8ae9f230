"""The key pair: the user's public key is imported, and the private key is never read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster.aws.client import Aws
from cluster.deploy import key_pair
from cluster.errors import DeepcdkError
from cluster.ssh import user_keys
from cluster.ssh.user_keys import UserKey
from cluster.ssh.user_settings import UserSettings


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def importable(home: Path, key: str = "") -> str:
    return key_pair.find_importable(key_pair.own_keys(home, key)).place


def test_key_at_default_path_is_imported(home: Path) -> None:
    for name in ("id_zebra.pub", "id_rsa.pub", "id_ed25519.pub"):
        (home / ".ssh" / name).write_text(f"ssh-{name[3:-4].replace('zebra', 'rsa')} {name[3]}AAA")
        assert importable(home) == str(home / ".ssh" / name)
    (home / "mine.pub").write_text("ssh-ed25519 AAAA")
    assert importable(home, str(home / "mine")) == str(home / "mine.pub")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ecdsa-sha2-nistp256 AAAA me", "ecdsa-sha2-nistp256"),
        ("sk-ssh-ed25519@openssh.com AAAA", "sk-ssh-ed25519@openssh.com"),
        ("ssh-dss AAAA", "ssh-dss"),
    ],
)
def test_unsupported_key_type_is_rejected_before_import(home: Path, text: str, said: str) -> None:
    (home / "mine.pub").write_text(text)
    with pytest.raises(DeepcdkError, match="EC2 accepts ed25519 and rsa") as caught:
        importable(home, str(home / "mine"))
    assert caught.value.where == f"{home / 'mine.pub'}: {said}"
    assert "ssh-keygen -t ed25519" in caught.value.remedy


@pytest.mark.parametrize("text", ["ssh-ed25519", "-----BEGIN PUBLIC KEY-----", ""])
def test_file_without_a_key_is_rejected(home: Path, text: str) -> None:
    (home / "mine").write_text(text)
    with pytest.raises(DeepcdkError, match="cannot be used as a private key"):
        importable(home, str(home / "mine"))


def make_key(path: Path, passphrase: str = "") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(path)], check=True)
    return path


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def own_key(path: Path) -> UserKey:
    (found,) = user_keys.find(UserSettings(), path.parent, str(path))
    return found


def test_key_is_imported_once(aws: Aws, home: Path) -> None:
    own = own_key(make_key(home / "key"))
    assert not key_pair.describe(aws, "deepcdk")
    assert key_pair.import_public_key(aws, "deepcdk", own)
    assert key_pair.describe(aws, "deepcdk")
    described = key_pair.describe(aws, "deepcdk")
    assert not key_pair.import_public_key(aws, "deepcdk", own_key(make_key(home / "other")))
    assert key_pair.describe(aws, "deepcdk") == described, "the one that was there stays"


def compared(aws: Aws, home: Path, key: str = "") -> key_pair.Match:
    described = key_pair.describe(aws, "deepcdk")
    assert described is not None
    return key_pair.match(described, key_pair.own_keys(home, key))


def test_own_key_pair_is_recognized_with_any_comment(aws: Aws, home: Path) -> None:
    public = make_key(home / ".ssh" / "id_ed25519").with_suffix(".pub")
    key_pair.import_public_key(aws, "deepcdk", own_key(public.with_suffix("")))
    public.write_text(" ".join([*public.read_text().split()[:2], "another comment"]))
    match = compared(aws, home)
    assert (match.found, match.differs) == (str(public.with_suffix("")), False)


def test_given_key_is_the_only_candidate_and_needs_no_public_file(aws: Aws, home: Path) -> None:
    make_key(home / ".ssh" / "id_ed25519")
    key_pair.import_public_key(aws, "deepcdk", own_key(home / ".ssh" / "id_ed25519"))
    other = make_key(home / "other")
    assert compared(aws, home, str(other)).differs
    Path(f"{other}.pub").unlink()
    assert compared(aws, home, str(other)).differs
    (home / ".ssh" / "id_ed25519.pub").unlink()
    assert not compared(aws, home, str(home / ".ssh" / "id_ed25519")).differs


def test_different_key_is_reported_with_both_fingerprints_and_a_fix(aws: Aws, home: Path) -> None:
    key_pair.import_public_key(aws, "deepcdk", own_key(make_key(home / "theirs")))
    make_key(home / ".ssh" / "id_ed25519")
    match = compared(aws, home)
    assert match.differs
    text = str(key_pair.OtherKeyError(match))
    assert "key pair deepcdk does not match your keys" in text
    assert match.theirs in text
    assert str(home / ".ssh" / "id_ed25519") in text
    assert "key_name" in text


def test_invisible_key_pair_is_not_reported_as_different(home: Path) -> None:
    match = key_pair.match(
        {"KeyName": "old", "KeyFingerprint": "aa:bb"},
        [UserKey(place="~/.ssh/a.pub", algorithm="ssh-ed25519", blob=b"")],
    )
    assert (match.theirs, match.differs) == ("", False)
