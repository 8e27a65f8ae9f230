"""The tools that are compared for pushing files to many hosts, and their commands."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent.spec.nodes import NODE_PYTHON
from benchmarks.peers import environment_of

REMOTE: Final = "bench-push"
"""Directory in each login user's home for the other tools, and the name of the data set for deepcdk."""
LOCAL_DATA: Final = "/home/deepcdk-rank/files/data"
"""Directory for data sets of `fab stage-data --to local` on each host."""
OURS: Final = "deepcdk"
SHARED: Final = "deepcdk-shared"
PSSH: Final = "parallel-ssh"
ANSIBLE: Final = "ansible"
PARALLEL_SSH: Final = """
import sys
from gevent import joinall
from pssh.clients import ParallelSSHClient
user, key, bastion, hosts, source, target = sys.argv[1:7]
client = ParallelSSHClient(hosts.split(","), user=user, pkey=key, proxy_host=bastion, proxy_user=user, proxy_pkey=key,
                           pool_size=len(hosts.split(",")))
if source:
    joinall(client.copy_file(source, target, recurse=True), raise_error=True)
else:
    output = client.run_command("true", stop_on_errors=True)
    client.join(output)
    assert all(host.exit_code == 0 for host in output)
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet:
    """The cluster to measure, as seen from the laptop."""

    user: str
    key: str
    bastion: str
    hosts: tuple[str, ...]
    """Addresses of the workers."""
    settings: tuple[str, ...]
    """Arguments for every `fab` task."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool's commands for pushing files and running a command."""

    name: str
    push: Callable[[Fleet, Path], list[str]]
    """Returns the laptop's command that pushes a directory."""
    command: Callable[[Fleet], list[str]] | None
    """Returns the laptop's command that runs `true` on all hosts; None: not compared."""
    place: str = f"/home/ec2-user/{REMOTE}"
    """Path of the pushed files on each host, as a shell word."""
    needs: tuple[str, ...] = ()
    """Required programs."""


def tools() -> list[Tool]:
    """Return deepcdk's two ways to push, then the other tools, also those that are not installed."""
    python = str(environment_of(PSSH) / "bin" / "python")

    def parallel_ssh(fleet: Fleet, source: str) -> list[str]:
        return [python, "-c", PARALLEL_SSH, fleet.user, fleet.key, fleet.bastion, ",".join(fleet.hosts), source, REMOTE]

    def rsync(fleet: Fleet, source: Path) -> list[str]:
        ssh = f"ssh -i {fleet.key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        each = f'rsync -a -e "$0" "$1/" "{fleet.user}@$h:{REMOTE}/" & p="$p $!"'
        line = f"for h in {' '.join(fleet.hosts)}; do {each}; done"
        waits = "for i in $p; do wait $i || exit 1; done"
        return ["sh", "-c", f"{line}; {waits}", f"{ssh} -o 'ProxyCommand={_through(fleet)}'", str(source)]

    def ansible(fleet: Fleet, module: str, arguments: str) -> list[str]:
        """Return an ad hoc command of Ansible for all hosts at once."""
        folder = environment_of(ANSIBLE) / "bin"
        jump = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o 'ProxyCommand={_through(fleet)}'"
        variables = {
            "ansible_user": fleet.user,
            "ansible_ssh_private_key_file": fleet.key,
            "ansible_ssh_common_args": jump,
            "ansible_python_interpreter": NODE_PYTHON,
        }
        words = [str(folder / "ansible"), "all", "-i", ",".join((*fleet.hosts, "")), "-e", json.dumps(variables)]
        words += [f"--forks={len(fleet.hosts)}", f"--module-name={module}", f"--args={arguments}"]
        return ["env", "ANSIBLE_HOST_KEY_CHECKING=False", *words]

    def stage(fleet: Fleet, source: Path, to: str) -> list[str]:
        return ["fab", "stage-data", str(source), "--name", REMOTE, "--to", to, *fleet.settings]

    return [
        Tool(
            name=OURS,
            push=lambda fleet, source: stage(fleet, source, "local"),
            command=lambda fleet: ["fab", "run", *fleet.settings, "--", "true"],
            place=f"{LOCAL_DATA}/{REMOTE}",
        ),
        Tool(
            name=SHARED,
            push=lambda fleet, source: stage(fleet, source, "shared"),
            command=None,
            place=f"/mnt/efs/data/{REMOTE}",
        ),
        Tool(name="rsync", push=rsync, command=None, needs=("rsync",)),
        Tool(
            name=PSSH,
            push=lambda fleet, source: parallel_ssh(fleet, str(source)),
            command=lambda fleet: parallel_ssh(fleet, ""),
        ),
        Tool(
            name=ANSIBLE,
            push=lambda fleet, source: ansible(fleet, "copy", f"src={source}/ dest={REMOTE}/"),
            command=lambda fleet: ansible(fleet, "command", "true"),
        ),
    ]


def _through(fleet: Fleet) -> str:
    """Return the ProxyCommand for a jump over the bastion. Unlike -J, it can set the key and ignore known_hosts."""
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    return f"ssh -i {fleet.key} {options} -W %h:%p {fleet.user}@{fleet.bastion}"


def missing(tool: Tool) -> str:
    """Return which program of the system a tool lacks, and how to install it; "" if nothing is missing."""
    for program in tool.needs:
        if not shutil.which(program):
            return f"program {program} not found; install it from the system's packages"
    return ""
