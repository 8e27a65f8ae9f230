"""The ssh_config: OpenSSH reads it as intended, only known keys are accepted, and writing it twice changes nothing."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings

from cluster.errors import DeepcdkError, UsageError
from cluster.ssh.host_keys import HostKey, write_private
from cluster.ssh.ssh_config_file import (
    INCLUDE,
    Files,
    config_text,
    entries,
    find_node,
    include,
    is_included,
    write_identity,
)
from cluster.ssh.user_keys import UserKey
from tests.factories import make_master, make_node
from tests.words import FILE_NAMES

NODES = (make_master(), make_node(1), make_node(12))


def key_of(instance_id: str) -> tuple[HostKey, ...]:
    blob = struct.pack(">I", 11) + b"ssh-ed25519" + instance_id.encode().ljust(36)
    return (HostKey(algorithm="ssh-ed25519", blob=blob),)


FOUND = entries("deepcdk", NODES, "198.18.1.2", key_of)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
def test_openssh_reads_command_for_master_without_address(tmp_path: Path) -> None:
    files = Files.below(tmp_path, "deepcdk")
    text = config_text("deepcdk", "ec2-user", FOUND, files, None, proxy_command="aws ssm 100%% x")
    write_private(files.config, text)
    for host, expected in (
        ("deepcdk-master", "proxycommand aws ssm 100%% x"),
        ("deepcdk-worker12", "proxyjump deepcdk-master"),
    ):
        done = subprocess.run(["ssh", "-G", "-F", str(files.config), host], capture_output=True, text=True, check=True)
        assert expected in done.stdout.splitlines()
    assert text.count("ProxyCommand") == 1


def test_openssh_reads_a_worker_behind_the_master_with_its_own_key(tmp_path: Path) -> None:
    folder = tmp_path / "with blank and 100%"
    files = Files.below(folder, "deepcdk")
    write_private(files.config, config_text("deepcdk", "ec2-user", FOUND, files, folder / "my key"))
    options = subprocess.run(
        ["ssh", "-G", "-F", str(files.config), "deepcdk-worker12"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert {
        "hostname 10.0.1.12", "user ec2-user", "hostkeyalias deepcdk-worker12", "proxyjump deepcdk-master",
        "stricthostkeychecking true", "identitiesonly yes", "globalknownhostsfile none",
    } <= set(options)  # fmt: skip
    assert f"userknownhostsfile {files.known_hosts}".replace("%", "%%") in options or (
        f"userknownhostsfile {files.known_hosts}" in options
    )


@pytest.mark.parametrize("address", ["10.0.64.5\\'$(touch x)\\'", "10.0.0.1\n    ProxyCommand id", "%h", "", "-oX=y"])
def test_entries_have_no_addresses_with_shell_syntax(address: str) -> None:
    with pytest.raises(DeepcdkError, match=r"deepcdk-master has the address .*: must be an IPv4 address"):
        entries("deepcdk", NODES, address, key_of)


def test_master_without_a_public_address_is_written_by_its_instance_id() -> None:
    assert entries("deepcdk", NODES, "i-0123456789abcdef0", key_of)[0].address == "i-0123456789abcdef0"


@pytest.mark.parametrize("text", ["worker12", "12", "deepcdk-worker12", "deeplearning-worker12"])
def test_node_can_have_short_name(text: str) -> None:
    assert find_node("deepcdk", text, NODES).name == "deeplearning-worker12"


def test_default_is_master_and_wrong_name_lists_valid_names() -> None:
    assert find_node("deepcdk", "", NODES).name == find_node("deepcdk", "master", NODES).name == "deeplearning-master"
    for wrong in ("2", "worker", "$(id)", "-oProxyCommand=x"):
        with pytest.raises(UsageError, match="must be one of master, worker1, worker12"):
            find_node("deepcdk", wrong, NODES)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
@settings(max_examples=20)
@given(name=FILE_NAMES)
@example(name="${HOME}")
@example(name="a ~ $HOME 'q' # %d")
def test_openssh_reads_key_with_any_file_name_or_it_is_rejected(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    root = tmp_path_factory.getbasetemp()
    files, key = Files.below(root, "deepcdk"), root / name
    try:
        text = config_text("deepcdk", "ec2-user", FOUND, files, key)
    except DeepcdkError:
        assert set(name) & set('"\\\r\n') or "${" in name or os.fsencode(name).decode("utf-8", "ignore") != name
        return
    write_private(files.config, text)
    command = ["ssh", "-G", "-F", str(files.config), "deepcdk-worker12"]
    options = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\n")
    assert b"identityfile " + os.fsencode(key).replace(b"%", b"%%") in options


def test_include_is_added_first_once_and_content_is_kept(tmp_path: Path) -> None:
    config = tmp_path / "config"
    assert not is_included(config)
    config.write_bytes(b"# caf\xe9\nHost mine\n    User me\n")  # in any encoding (Paramiko #2361)
    assert (include(config), include(config)) == (True, False)
    assert config.read_bytes() == f"{INCLUDE}\n".encode() + b"# caf\xe9\nHost mine\n    User me\n"


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
def test_openssh_uses_key_of_agent_by_its_public_file(tmp_path: Path) -> None:
    files = Files.below(tmp_path, "deepcdk")
    key = UserKey(place="agent (me)", algorithm="ssh-ed25519", blob=key_of("i-1")[0].blob)
    identity = write_identity(files, key)
    write_private(files.config, config_text("deepcdk", "admin", FOUND, files, identity, agent="/run/my agent"))
    assert files.public_key.read_text() == f"{key_of('i-1')[0]}\n"
    command = ["ssh", "-G", "-F", str(files.config), "deepcdk-master"]
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert {f"identityfile {files.public_key}", "identitiesonly yes", "identityagent /run/my agent"} <= set(options)
    assert (
        write_identity(files, UserKey(place="x", algorithm="", blob=b"", path=tmp_path / "k.pem")) == tmp_path / "k.pem"
    )
