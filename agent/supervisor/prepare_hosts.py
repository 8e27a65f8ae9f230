"""Prepare the master and the hosts of an attempt: make environments, remove leftovers, copy the program and secrets."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import UPLOAD_AGAIN, SpecError
from agent.files.atomic_write import MAKE_ROOM, new_directory, reports_full_disk
from agent.launch.launcher_command import Interpreters
from agent.launch.run_hosts import MASTER, Hosts, tail
from agent.preflight.report import replace_remedy
from agent.remote import secret_files
from agent.remote.ssh import SSH_FAILED, Completed
from agent.runs.node_claims import Runs
from agent.spec.laptop_requests import secrets_command
from agent.spec.nodes import NODE_PYTHON, Node
from agent.spec.run import RunSpec
from agent.supervisor import prepare_node

TIMEOUT_S: Final = 1800.0
"""Building Horovod on a node of a new type takes minutes. The build is kept on the node."""
NO_RUNTIME: Final = Interpreters(launcher=NODE_PYTHON, ranks=NODE_PYTHON, runtime="")
"""For an attempt that needs no runtime, or that was stopped during the preparation."""


class PreparationError(RuntimeError):
    """Report hosts that could not be prepared. `failures` contains each host's last lines of output."""

    def __init__(self, failures: Mapping[str, str]) -> None:
        self.failures = dict(failures)
        hosts_by_lines: dict[str, list[str]] = {}
        for host, lines in self.failures.items():
            hosts_by_lines.setdefault(lines, []).append(host)
        super().__init__("; ".join(f"{', '.join(hosts)}: {lines}" for lines, hosts in hosts_by_lines.items()))


def prepare(
    spec: RunSpec, hosts: Hosts, *, is_stopped: Callable[[], bool], cleared: set[str]
) -> tuple[Interpreters, dict[str, Completed]]:
    """Prepare the master and all hosts concurrently. Return the Python interpreters, and each host's output by name.

    This makes environments, isolates the run's ranks from those of other runs, removes leftovers of ranks, and sends
    the secrets. `cleared` contains the instance ids of the hosts that only this run has used since their leftovers were
    removed. It is updated. If `is_stopped` becomes true meanwhile, the result is NO_RUNTIME without outputs. Raises
    PreparationError.
    """
    hosts_now = {host.instance_id for host in spec.hosts}
    cleared &= hosts_now  # Other runs may have used the remaining ones since.
    # As root, each host gives its ranks the group of this run's files, and admits only ranks of these hosts.
    admission = f"run {Path(spec.run_directory).stat().st_gid} {','.join(host.address for host in spec.hosts)}"
    # Ranks of other runs may have left something on the other hosts. Asking first would take a second connection.
    new = [host for host in spec.hosts if host.instance_id not in cleared]
    answers, admitted, emptied = hosts.prepare(prepare_node.command(spec), TIMEOUT_S, admission=admission, dirty=new)
    if is_stopped():
        return NO_RUNTIME, {}
    if found := failures(answers) or _not_admitted(admitted, admission) or failures(emptied):
        raise PreparationError(found)
    prepared = {}
    for name, done in answers.items():
        try:
            prepared[name] = prepare_node.parse(done.output)
        except ValueError as error:
            again = f"`fab resume {spec.run_id}`"
            remedy = again if name == MASTER else f"{replace_remedy(name)}, then {again}"
            raise PreparationError({name: f"{error}; do: {remedy}"}) from None
    # Files on hosts without such processes are from earlier attempts of this run, and are kept. A process that has
    # started since its host was cleared, such as a copy of data, must not run beside the ranks.
    busy = [host for host in spec.hosts if prepared[host.name].has_rank_processes]
    if busy and (found := failures(hosts.clear(busy))):
        raise PreparationError(found)
    cleared |= hosts_now
    remote = functools.partial(hosts.remote, as_rank=True)
    if failed := secret_files.distribute(secret_files.master_directory(Path.home()), spec, remote):
        raise PreparationError({name: text + _advice(name, text) for name, text in failed.items()})
    return interpreters(prepared), answers


def failures(answers: Mapping[str, Completed]) -> dict[str, str]:
    """Return the last lines of output of each host whose command failed, by name; {} if none failed.

    `answers` are the results of the hosts' commands. Advice is added for an unreachable host or a full disk.
    """
    return {
        name: tail(done.output)
        + (_advice(name, done.output) if done.status == SSH_FAILED or reports_full_disk(done.output) else "")
        for name, done in answers.items()
        if done.status != 0
    }


def _advice(host: str, output: str) -> str:
    """Return advice about a host after this output: free space if its disk is full, or replace the host.

    The text begins with "; do: ". It is "" if the output already contains advice on a full disk. `fab replace` cannot
    replace the master.
    """
    if MAKE_ROOM in output:
        return ""
    room = f"free space on {host}{MAKE_ROOM}" if reports_full_disk(output) else ""
    replace = "" if host == MASTER else replace_remedy(host)
    return f"; do: {', or '.join(filter(None, [room, replace]))}" if room or replace else ""


def _not_admitted(answers: Mapping[str, Completed], admission: str) -> dict[str, str]:
    """Return an explanation for each host, by name, that did not confirm that it isolates this run's ranks.

    `answers` are the hosts' outputs. A host confirms by printing the line `admission`.
    """
    return {
        name: f"cannot isolate the ranks of this run from other runs: {tail(done.output)}{_advice(name, done.output)}"
        for name, done in answers.items()
        if done.status != 0 or admission not in done.output.splitlines()
    }


def interpreters(prepared: Mapping[str, prepare_node.Prepared]) -> Interpreters:
    """Return the interpreters for a launch from the results of the master and the hosts.

    Raises PreparationError if the hosts prepared different ones, because a launcher starts all ranks with one path.
    """
    master = prepared[MASTER]
    of_hosts = {name: found for name, found in prepared.items() if name != MASTER}
    if len(set(of_hosts.values())) != 1:
        paths = ", ".join(f"{found.python} on {name}" for name, found in of_hosts.items())
        what = "different Python environments were prepared, but all ranks must use the same path"
        raise PreparationError({", ".join(of_hosts): f"{what}: {paths}; do: `fab replace` the node that differs"})
    ranks = next(iter(of_hosts.values()))
    return Interpreters(launcher=master.python, ranks=ranks.python, runtime=ranks.runtime)


def stage(spec: RunSpec) -> None:
    """Copy the pushed program into the run's directory, unless an earlier attempt did. Does nothing for recipes.

    The ranks work in the copy, so the files that they write belong to this run. The pushed tree, which other runs with
    the same program share, does not change. Every user may write to the copy, but only this run's ranks can enter the
    run's directory. Raises SpecError if the pushed tree does not exist.
    """
    if not spec.program:
        return
    source, target = Path(spec.program_directory), Path(spec.working_directory)
    if target.exists():
        return
    if not source.is_dir():
        raise SpecError(f"the uploaded program of run {spec.run_id} is missing: {source}; {UPLOAD_AGAIN}")
    with new_directory(target) as partial:
        shutil.copytree(source, partial, symlinks=True, dirs_exist_ok=True, copy_function=_copy)
        for directory, _, _ in os.walk(partial):
            Path(directory).chmod(0o777)


def _copy(source: str, target: str) -> None:
    """Copy a file and let every user write to it. Executable files stay executable."""
    shutil.copyfile(source, target)
    Path(target).chmod(stat.S_IMODE(Path(source).stat().st_mode) | 0o666)


def remove_secrets(spec: RunSpec, hosts: Hosts, left: Sequence[Node], runs: Runs, *, is_over: bool) -> None:
    """Remove a run's secrets on all nodes, and stale secrets of other runs on the master.

    `left` are hosts of earlier attempts. The master keeps the secrets of a run that is not over, for its next
    supervisor. Failures are logged or ignored.
    """
    here = secret_files.master_directory(Path.home())
    if spec.secrets:
        if is_over:
            with contextlib.suppress(OSError):
                secret_files.remove(here, spec.run_id)  # first, because a user may remove the run meanwhile
        drop, everyone = secrets_command("drop", spec.run_id), [None, *spec.hosts, *left]
        for name, done in hosts.everywhere(everyone, drop, 30.0, as_rank=True).items():
            if done.status != 0:
                hosts.log_line(f"{name}: cannot remove secrets; the next run removes them: {tail(done.output)}")
    with contextlib.suppress(OSError):
        secret_files.remove_stale(here, runs)
