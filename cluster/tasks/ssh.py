"""The tasks that open a shell on a node, and write an ssh_config for plain ssh."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from invoke.exceptions import Exit

from agent.spec.nodes import MASTER_NAME, Node
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import DeepcdkError
from cluster.session import Session
from cluster.ssh import session_manager, ssh_config_file, user_settings
from cluster.ssh.host_keys import write_private
from cluster.ssh.master import Master
from cluster.terminal.confirmation import confirm
from cluster.terminal.output import print_line, print_note, print_result
from cluster.terminal.status_line import doing
from stacks.config_keys.network import SESSION_MANAGER


@task()
def ssh_config(
    set_: Set = (),
    install: Annotated[bool, "add the Include line to ~/.ssh/config"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Write an ssh_config, so that plain ssh, scp and rsync reach every node.

    The host keys are read from the instances' consoles. Your private key is not copied.

    Example: fab ssh-config --install && ssh deepcdk-worker3
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        files, found = _write_ssh_config(session, master, session.nodes(master))
    if not user_settings.openssh_knows_user():
        print_note(
            "warning: OpenSSH's ssh and scp need an entry for your user in the password database: add it to "
            "/etc/passwd. `fab ssh` works without it"
        )
    config = Path.home() / ".ssh" / "config"
    included, place = False, str(config)
    try:
        if install and not ssh_config_file.is_included(config):
            confirm(f"add the line `{ssh_config_file.INCLUDE}` at the top of {config}.", yes=yes)
            ssh_config_file.include(config)
        included = ssh_config_file.is_included(config)
    except DeepcdkError:
        if install:
            raise
        place = f"a readable {config}"  # an earlier warning has reported that it cannot be read
    if json:
        hosts = {entry.alias: {"address": entry.address, "instance": entry.instance_id} for entry in found}
        paths = {"config": str(files.config), "known_hosts": str(files.known_hosts), "included": included}
        print_result({**paths, "hosts": hosts}, json=True)
        return
    print_line(f"{files.config}: {', '.join(entry.alias for entry in found)}")
    last = found[-1].alias
    if included:
        print_line(f"try: ssh {last} hostname; scp FILE {last}:; rsync -a DIR {last}:")
    else:
        print_line(f"add this line at the top of {place}, or repeat with --install:\n  {ssh_config_file.INCLUDE}")
        print_line(f"without the line: ssh -F {files.config} {last}")


@task(word="--node")
def ssh(set_: Set = (), node: Annotated[str, "master, worker3 or 3; default: the master"] = "", key: Key = "") -> None:
    """
    Open a shell on the master, or through the master on a worker.

    Example: fab ssh worker3
    """
    session = Session(PROJECT, set_, key=key)
    with session.connect() as master:
        nodes = session.nodes(master)
        chosen = ssh_config_file.find_node(session.stack.name, node, nodes)
        if not user_settings.openssh_knows_user():
            through = ["ssh", *(["-t"] if sys.stdin.isatty() else []), chosen.name]
            raise Exit(code=master.shell(["bash", "-l"] if chosen.name == MASTER_NAME else through))
        files, _ = _write_ssh_config(session, master, nodes)
    command = ["ssh", "-F", str(files.config), ssh_config_file.alias(session.stack.name, chosen.name)]
    try:
        # ssh then handles the terminal, its size and signals itself. Its ProxyCommand may be the AWS CLI.
        os.execvpe(command[0], command, session.aws.environment())
    except FileNotFoundError:
        raise DeepcdkError("ssh is not installed", remedy="install the OpenSSH client") from None


def _write_ssh_config(
    session: Session, master: Master, nodes: Sequence[Node]
) -> tuple[ssh_config_file.Files, tuple[ssh_config_file.Entry, ...]]:
    """Update the cluster's ssh_config, known host keys and identity below ~/.ssh.

    Return the paths of the files, and the entries for the nodes. Raises DeepcdkError or OSError.
    """
    folder = Path.home() / ".ssh"
    files = ssh_config_file.Files.below(folder, session.stack.name)
    kept = session.kept_host_keys
    instance, tunnelled = session.load_inventory().master, session.stack.ssh_access == SESSION_MANAGER
    with doing("reading the nodes' host keys"):
        found = ssh_config_file.entries(
            session.stack.name,
            nodes,
            instance.id if tunnelled else instance.public_ip,
            lambda instance_id: kept.read(instance_id) or kept.identify(session.aws, instance_id),
        )
    proxy = session_manager.proxy_command(instance.id, session.aws.region) if tunnelled else master.settings.proxy
    agent = master.settings.agent
    text = ssh_config_file.config_text(
        session.stack.name,
        session.stack.login_user,
        found,
        files,
        ssh_config_file.write_identity(files, master.user_key),
        agent="" if agent == os.environ.get("SSH_AUTH_SOCK", "") else agent,
        proxy_command=proxy,
    )
    write_private(files.known_hosts, ssh_config_file.known_hosts_text(found))
    write_private(files.config, text)
    return files, found
