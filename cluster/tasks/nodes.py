"""The tasks for nodes: change their number, replace one, allow them again after the budget, and open a shell on one."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from invoke.exceptions import Exit

from agent.spec.nodes import MASTER_NAME, Node
from cluster.aws import worker_limits
from cluster.cli import PROJECT
from cluster.cli.flags import parse_whole
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import DeepcdkError, UsageError
from cluster.nodes import replace as replacing
from cluster.nodes import scale as scaling
from cluster.nodes.grow import GroupTask
from cluster.nodes.worker_group import check_maximum
from cluster.session import Session, confirm
from cluster.ssh import config_file, session_manager, user_settings
from cluster.ssh.host_keys import write_private
from cluster.ssh.master import Master
from cluster.terminal.output import print_line, print_note, print_result, progress_printer
from cluster.terminal.status_line import doing
from stacks.config_keys.network import SESSION_MANAGER


@task(word="--nodes")
def scale(
    set_: Set = (),
    nodes: Annotated[str, "number of worker nodes, from 0"] = "",
    force: Annotated[bool, "also remove nodes of a live run, after stopping it with a checkpoint"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Set the number of workers, and wait until it is reached.

    A live run keeps its nodes. Idle workers with the highest numbers are removed first.

    Example: fab scale 4
    """
    session, progress = Session(PROJECT, set_, key=key), progress_printer(json=json)
    wanted = parse_whole("--nodes", nodes, lowest=0)
    check_maximum(wanted, session.load_inventory(), session.config.max_workers)
    session.prices.begin(session.instance_types)
    with session.connect() as master:
        task = GroupTask(session=session, master=master, name="fab scale", yes=yes, force=force, report=progress)
        scaled = scaling.scale(task, wanted)
    print_result(dataclasses.asdict(scaled), str(scaled), json=json)


@task(word="--node")
def replace(
    set_: Set = (),
    node: Annotated[str, "worker3, 3, or the id of an instance"] = "",
    force: Annotated[bool, "also replace a node of a live run, after stopping it with a checkpoint"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Replace a worker: terminate its instance, and wait until a new one has joined.

    Example: fab replace worker3
    """
    session, progress = Session(PROJECT, set_, key=key), progress_printer(json=json)
    if not node:
        raise UsageError("--node", None, "must name the worker to replace; `fab status` lists the instances")
    with session.connect() as master:
        task = GroupTask(session=session, master=master, name="fab replace", yes=yes, force=force, report=progress)
        done = replacing.replace(task, node)
    print_result(dataclasses.asdict(done), str(done), json=json)


@task()
def release(set_: Set = (), json: Json = False, yes: Yes = False) -> None:
    """
    Allow workers again after the budget stopped all of them.

    Raise budget_usd first. Otherwise the cost has no limit, because the budget raises its alarm only once a month.

    Example: fab release && fab scale 4
    """
    session = Session(PROJECT, set_)
    stack, progress = session.stack.name, progress_printer(json=json)
    with doing("asking AWS for the limits"):
        found = worker_limits.read(session.aws, stack)
    budget = next((limit for limit in found if limit.kind == "budget"), None)
    if budget is None:
        raise DeepcdkError(
            f"stack {stack} has no budget that terminates workers, so there is nothing to release",
            remedy="`fab status` shows the limits of the stack",
        )
    held = bool(worker_limits.count_messages(session.aws, budget))
    if held:
        confirm("allow workers again, although the budget is spent.", yes=yes)
        worker_limits.purge_messages(session.aws, budget)
        worker_limits.wait_for_end(session.aws, stack, progress)
        progress("released; `fab scale` and `fab train` can add workers again")
    else:
        progress("the budget does not block workers")
    if json:
        print_result({"stack": stack, "released": held}, json=True, indent=None)


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
        if install and not config_file.is_included(config):
            confirm(f"add the line `{config_file.INCLUDE}` at the top of {config}.", yes=yes)
            config_file.include(config)
        included = config_file.is_included(config)
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
        print_line(f"add this line at the top of {place}, or repeat with --install:\n  {config_file.INCLUDE}")
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
        chosen = config_file.find_node(session.stack.name, node, nodes)
        if not user_settings.openssh_knows_user():
            through = ["ssh", *(["-t"] if sys.stdin.isatty() else []), chosen.name]
            raise Exit(code=master.shell(["bash", "-l"] if chosen.name == MASTER_NAME else through))
        files, _ = _write_ssh_config(session, master, nodes)
    command = ["ssh", "-F", str(files.config), config_file.alias(session.stack.name, chosen.name)]
    try:
        # ssh then handles the terminal, its size and signals itself. Its ProxyCommand may be the AWS CLI.
        os.execvpe(command[0], command, session.aws.environment())
    except FileNotFoundError:
        raise DeepcdkError("ssh is not installed", remedy="install the OpenSSH client") from None


def _write_ssh_config(
    session: Session, master: Master, nodes: Sequence[Node]
) -> tuple[config_file.Files, tuple[config_file.Entry, ...]]:
    """Update the cluster's ssh_config, known host keys and identity below ~/.ssh.

    Return the paths of the files, and the entries for the nodes. Raises DeepcdkError or OSError.
    """
    folder = Path.home() / ".ssh"
    files = config_file.Files.below(folder, session.stack.name)
    kept = session.kept_host_keys
    instance, tunnelled = session.load_inventory().master, session.stack.ssh_access == SESSION_MANAGER
    with doing("reading the nodes' host keys"):
        found = config_file.entries(
            session.stack.name,
            nodes,
            instance.id if tunnelled else instance.public_ip,
            lambda instance_id: kept.read(instance_id) or kept.identify(session.aws, instance_id),
        )
    proxy = session_manager.proxy_command(instance.id, session.aws.region) if tunnelled else master.settings.proxy
    agent = master.settings.agent
    text = config_file.config_text(
        session.stack.name,
        session.stack.login_user,
        found,
        files,
        config_file.write_identity(files, master.user_key),
        agent="" if agent == os.environ.get("SSH_AUTH_SOCK", "") else agent,
        proxy_command=proxy,
    )
    write_private(files.known_hosts, config_file.known_hosts_text(found))
    write_private(files.config, text)
    return files, found
