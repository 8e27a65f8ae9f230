"""Facts about the key pair: the user's public key is imported, and the private half is never read."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from cluster import keypair
from cluster.aws import Aws
from cluster.errors import DeepcdkError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def test_the_public_key_is_found_beside_the_private_one(home: Path) -> None:
    (home / ".ssh" / "id_rsa.pub").write_text("ssh-rsa A")
    assert keypair.find_public_key(home).name == "id_rsa.pub"
    (home / ".ssh" / "id_ed25519.pub").write_text("ssh-ed25519 A")
    assert keypair.find_public_key(home).name == "id_ed25519.pub"
    (home / "mine.pub").write_text("ssh-ed25519 A")
    assert keypair.find_public_key(home, str(home / "mine")) == home / "mine.pub"


def test_without_a_key_the_way_to_one_is_told(home: Path) -> None:
    with pytest.raises(DeepcdkError) as caught:
        keypair.find_public_key(home)
    assert "ssh-keygen -t ed25519" in caught.value.remedy


def test_a_key_is_imported_once(aws: Aws, home: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "key")], check=True)
    (home / "key").unlink()
    assert not keypair.exists(aws, "deepcdk")
    keypair.import_public_key(aws, "deepcdk", home / "key.pub")
    assert keypair.exists(aws, "deepcdk")
