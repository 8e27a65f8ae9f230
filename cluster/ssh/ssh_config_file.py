"""Write an ssh_config for the cluster, with verified host keys, so that ssh, scp and rsync reach every node."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import write_atomically
from agent.spec.nodes import MASTER_NAME, RULES, WORKER_PREFIX, Node, escaped
from cluster.errors import DeepcdkError, UsageError
from cluster.ssh.host_keys import HostKey, write_private
from cluster.ssh.user_keys import UserKey

FOLDER: Final = "deepcdk"
"""Folder within ~/.ssh."""
INCLUDE: Final = f"Include {FOLDER}/*.config"
"""Relative paths in ~/.ssh/config are below ~/.ssh."""
_COMMON: Final = MASTER_NAME.removesuffix("master")
_PARALLEL_CONSOLES: Final = 8
"""EC2 throttles more parallel requests."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One node in the ssh_config. Raises DeepcdkError for an invalid address."""

    alias: str
    """The node's name for SSH: STACK-worker3."""
    address: str
    """The master's public address, or its instance id if it has none; a worker's private address."""
    instance_id: str
    keys: tuple[HostKey, ...]

    def __post_init__(self) -> None:
        # OpenSSH passes the address to a shell for a ProxyJump.
        if not any(RULES[rule].fits(self.address) for rule in ("address", "instance_id")):
            raise DeepcdkError(
                f"{self.alias} has the address {escaped(self.address)}: must be {RULES['address'].words}",
                remedy="compare it with the address in `fab status`; `fab replace` a worker whose address differs",
            )

    @property
    def is_master(self) -> bool:
        return self.alias.endswith("-master")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Files:
    """The files of one cluster below ~/.ssh."""

    config: Path
    known_hosts: Path
    public_key: Path
    """The public half of a key that is only in the agent, which tells ssh which key to use."""

    @classmethod
    def below(cls, ssh_folder: Path, stack: str) -> Files:
        """Return the paths of a stack's files. They need not exist."""
        folder = ssh_folder / FOLDER
        return cls(
            config=folder / f"{stack}.config",
            known_hosts=folder / f"{stack}.known_hosts",
            public_key=folder / f"{stack}.pub",
        )


def alias(stack: str, node: str) -> str:
    """Return a node's name for SSH: STACK-worker3 for the node deeplearning-worker3."""
    return f"{stack}-{node.removeprefix(_COMMON)}"


def find_node(stack: str, text: str, nodes: Sequence[Node]) -> Node:
    """Return the node that the text names as worker3, 3, STACK-worker3 or its full name; the master for "".

    Raises UsageError, which names --node, if `nodes` has no such node.
    """
    word = text.strip().removeprefix(f"{stack}-").removeprefix(_COMMON)
    wanted = f"{WORKER_PREFIX}{word}" if word.isdecimal() else f"{_COMMON}{word or 'master'}"
    for node in nodes:
        if node.name == wanted:
            return node
    there = ", ".join(node.name.removeprefix(_COMMON) for node in nodes)
    raise UsageError("--node", text, f"must be one of {there}")


def quoted(path: Path) -> str:
    """Quote a path for ssh_config. A % is doubled, because it starts a token. Raises DeepcdkError if the path cannot be
    quoted.
    """
    text = str(path)
    # SSH expands ${NAME}, and there is no escape for it. The file is UTF-8.
    if re.search(r'["\\\r\n\ud800-\udfff]|\$\{', text):
        raise DeepcdkError(
            f"the path {text!r} cannot be written to ssh_config: it contains a quote, a backslash, ${{, a line break "
            "or a character that is not UTF-8",
            remedy="use a path without these characters",
        )
    return '"' + text.replace("%", "%%") + '"'


def config_text(
    stack: str,
    user: str,
    entries: Sequence[Entry],
    files: Files,
    identity: Path | None,
    *,
    agent: str = "",
    proxy_command: str = "",
) -> str:
    """Return the ssh_config for a cluster: the master by its address, the workers through the master.

    All host keys are verified. `user` is the login user. `identity` is the key that the nodes accept; None for ssh's
    own choice. `agent` is the socket of an agent other than SSH_AUTH_SOCK. `proxy_command` reaches the master through a
    proxy, or without a public address.
    """
    lines = [f"# Written by `fab ssh-config` for stack {stack}; repeat the command after nodes were added or removed."]
    master = alias(stack, MASTER_NAME)
    for entry in entries:
        lines += ["", f"Host {entry.alias}", f"    HostName {entry.address}", f"    HostKeyAlias {entry.alias}"]
        if not entry.is_master:
            lines.append(f"    ProxyJump {master}")
        elif proxy_command:
            lines.append(f"    ProxyCommand {proxy_command}")
    lines += [
        "",
        f"Host {' '.join(entry.alias for entry in entries)}",
        f"    User {user}",
        f"    UserKnownHostsFile {quoted(files.known_hosts)}",
        "    GlobalKnownHostsFile none",
        "    StrictHostKeyChecking yes",
        "    UpdateHostKeys no",
        "    ServerAliveInterval 15",
        # Without IdentitiesOnly, an agent with six other keys would use up sshd's limit (MaxAuthTries).
        *([f"    IdentityFile {quoted(identity)}", "    IdentitiesOnly yes"] if identity else []),
        *([f"    IdentityAgent {quoted(Path(agent))}"] if agent else []),
    ]
    return "\n".join(lines) + "\n"


def known_hosts_text(entries: Sequence[Entry]) -> str:
    """Return the known_hosts file: a line for each key of each node, with the instance id as the comment."""
    return "".join(f"{entry.alias} {key} {entry.instance_id}\n" for entry in entries for key in entry.keys)


def entries(
    stack: str,
    nodes: Sequence[Node],
    master_address: str,
    read_keys: Callable[[str], tuple[HostKey, ...]],
) -> tuple[Entry, ...]:
    """Return the entries of these nodes for the ssh_config, in the order of `nodes`.

    `read_keys` returns the host keys of an instance id. It is called for several nodes in parallel, and its errors are
    raised. `master_address` replaces the master's address in `nodes`. Raises DeepcdkError for an invalid address.
    """
    with concurrent.futures.ThreadPoolExecutor(max_workers=_PARALLEL_CONSOLES) as pool:
        keys = list(pool.map(read_keys, (node.instance_id for node in nodes)))
    return tuple(
        Entry(
            alias=alias(stack, node.name),
            address=master_address if node.name == MASTER_NAME else node.address,
            instance_id=node.instance_id,
            keys=found,
        )
        for node, found in zip(nodes, keys, strict=True)
    )


def write_identity(files: Files, key: UserKey | None) -> Path | None:
    """Return the absolute path for IdentityFile; None if `key` is None.

    It is the key's file. For a key that is only in the agent, its public half is written to `files.public_key`, and
    this path is returned. Raises OSError.
    """
    if key is None:
        return None
    if key.path is not None:
        return key.path.absolute()
    write_private(files.public_key, f"{key.public_text}\n")
    return files.public_key


def is_included(config: Path) -> bool:
    """Return whether the user's ssh_config, the file `config`, has the line INCLUDE for the files of all clusters.

    Return False if the file does not exist. Raises DeepcdkError if it is unreadable.
    """
    return INCLUDE in (line.strip() for line in _read(config).splitlines())


def include(config: Path) -> bool:
    """Add the line INCLUDE to the top of the user's ssh_config, the file `config`, unless it has this line.

    Return whether the line was added. Below a Host line it would apply only to that host. Raises DeepcdkError if the
    file is unreadable, and OSError.
    """
    if is_included(config):
        return False
    old = _read(config)
    write_atomically(config.resolve(), os.fsencode(f"{INCLUDE}\n{old}"), mode=0o600)
    return True


def _read(config: Path) -> str:
    """Return the user's ssh_config; "" if it does not exist. Raises DeepcdkError if it is unreadable.

    Its comments may have any encoding.
    """
    try:
        return os.fsdecode(config.read_bytes())
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise DeepcdkError(f"{config} cannot be read: {error.strerror}", remedy="make it a readable file") from None
