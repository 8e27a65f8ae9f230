"""Become a rank: read its command, directory and variables from the run's spec, and execute the command.

    python -m agent.launch.rank RUN_DIRECTORY [-m MODULE ...]    # run a module of the payload instead of the command

Horovod's launcher uses command lines that a shell parses and `ps` shows. So it always starts this module. The user's
command and variables are in a file: they can have any length and content, and no command line shows them.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.errors import SpecError, describe
from agent.hardware import efa
from agent.hardware.machine import own_addresses
from agent.remote import rank_user, secret_files
from agent.spec.launchers import HOROVOD, MASTER_PORT, PLAIN, TF_CONFIG, node_variables, place_values, tf_config
from agent.spec.nodes import Node
from agent.spec.run import PLACED, RunSpec

NOT_STARTED: Final = 127
LOG_LEVEL: Final = "TF_CPP_MIN_LOG_LEVEL"
"""Lowest severity in TensorFlow's log: 0 INFO, 1 WARNING, 2 ERROR. INFO has lines about the processor at each start."""


def environment(spec: RunSpec, inherited: Mapping[str, str], python: str, interface: str) -> dict[str, str]:
    """Return all environment variables of the rank's program, except for secrets.

    They are the launcher's (`inherited`), those for the network `interface` and for joining other ranks, and the
    user's, which take precedence. `python` is the ranks' Python; its folder comes first in a user program's PATH.
    PYTHONPATH begins with the agent's folder, or for a user program with its hooks (`program_hooks`). Python's output
    is unbuffered, so lines appear immediately and are not lost when the rank is killed. TensorFlow's log begins at
    warnings, unless a variable sets its level.
    """
    result = {
        LOG_LEVEL: "1",
        **inherited,
        "PYTHONUNBUFFERED": "1",
        **on_interface(spec, interface),
        **joining(spec, inherited),
    }
    result["PWD"] = spec.working_directory
    given = dict(spec.environment)
    if spec.program:
        # `python` and programs from the requirements come before the system's.
        result["PATH"] = f"{Path(python).parent}:{result.get('PATH', os.defpath)}"
        if spec.keras == 2:
            result["TF_USE_LEGACY_KERAS"] = "1"
    # A recipe imports modules of the agent. For a program, hooks report what would fail silently under Keras 3.
    path = f"{spec.agent_directory}/agent/launch/program_hooks" if spec.program else spec.agent_directory
    return result | given | {"PYTHONPATH": ":".join(filter(None, [path, given.get("PYTHONPATH", "")]))}


def on_interface(spec: RunSpec, interface: str) -> dict[str, str]:
    """Return the variables that limit Gloo and NCCL to one interface; {} if it is unknown."""
    gloo = "HOROVOD_GLOO_IFACE" if spec.rank_launcher == HOROVOD else "GLOO_SOCKET_IFNAME"
    return {gloo: interface, "NCCL_SOCKET_IFNAME": f"={interface}"} if interface else {}


def joining(spec: RunSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that some libraries need to connect the ranks of a user program; {} under Horovod.

    Without them, each rank would train alone. Under the launcher `plain`, they are TF_CONFIG for TensorFlow's
    multi-worker strategy, and the variables of `jax.distributed` and `keras.distribution`. On nodes without GPUs,
    ACCELERATE_USE_CPU is added, because Accelerate connects ranks on CPUs only if it is set.
    """
    if not spec.program or spec.rank_launcher == HOROVOD:
        return {}
    kind, result = spec.runtime_kind, dict[str, str]()
    if spec.rank_launcher == PLAIN and inherited.get("RANK", "").isdecimal():
        meeting = f"{spec.hosts[0].address}:{MASTER_PORT}"
        result = {
            TF_CONFIG: tf_config(spec.hosts, int(inherited["RANK"])),
            "JAX_COORDINATOR_ADDRESS": meeting,
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": meeting,
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(spec.ranks),
            "KERAS_DISTRIBUTION_PROCESS_ID": inherited["RANK"],
        }
    if kind and not kind.has_gpus:
        result["ACCELERATE_USE_CPU"] = "true"
    return result


def bind_program(spec: RunSpec, inherited: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Bind this process to the rank's part of the host, which its program inherits; return the variables for this part.

    Rank 0 prints the placement to stderr.
    """
    # Not at the top: the nodes' preparation imports this module, and ranks that do not need it start faster.
    from agent.launch.program_placement import set_up_program

    environ = {**inherited, **dict(spec.environment), **secrets}
    setup = set_up_program(environ, launcher=spec.rank_launcher, own_gpu=spec.own_gpu)
    if "0" in (environ.get("HOROVOD_RANK"), environ.get("RANK")):
        print(f"[placement] {setup}", file=sys.stderr, flush=True)
    return dict(setup.variables)


def this_host(spec: RunSpec) -> Node | None:
    """Return the host of the run that is this node, by its address; None on any other machine, such as the master."""
    own = own_addresses()
    return next((host for host in spec.hosts if host.address in own), None)


def interface_of(spec: RunSpec, name: str) -> str:
    """Return the name of this machine's network interface that has the address of the run's host `name`.

    Return "" if that host is not this machine.
    """
    own = own_addresses()
    return next((own.get(host.address, "") for host in spec.hosts if host.name == name), "")


def must_start_watchdog(spec: RunSpec, inherited: Mapping[str, str]) -> bool:
    """Return whether this rank must start the watchdog of its node (`agent.launch.rank_watchdog`).

    The first rank of each node starts it, if limits, stuck ranks or the ranks' connections are to be watched.
    """
    local_rank = inherited.get("HOROVOD_LOCAL_RANK", inherited.get("LOCAL_RANK", "0"))
    return bool(spec.bounds or spec.stall_after_s or spec.may_train_apart) and local_rank == "0"


def start_detached(words: Sequence[str], *, directory: str, environ: Mapping[str, str]) -> bool:
    """Start the command `words` in `directory`, without input and output, with only these variables.

    Return whether it started. It is a grandchild of this process, and its parent has exited when this returns. The
    program that this process becomes may wait for any child, and does not see it. This process must have no other
    threads.
    """
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setsid()
            null = subprocess.DEVNULL
            subprocess.Popen(words, cwd=directory, env=environ, stdin=null, stdout=null, stderr=null)
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def start_watchdog(spec: RunSpec, inherited: Mapping[str, str]) -> bool:
    """Start the watchdog for this node's ranks; return False if it could not be started.

    This is called before the process becomes the rank's program. The watchdog has none of the variables that identify
    the run's processes, so it is not terminated with them. It needs no packages.
    """
    node = inherited.get("HOROVOD_HOSTNAME", "")
    known = node if node in {host.name for host in spec.hosts} else ""
    return start_detached(
        [sys.executable, "-S", "-m", "agent.launch.rank_watchdog", spec.run_directory, known],
        directory=spec.agent_directory,
        environ={"PATH": os.defpath, "PYTHONPATH": spec.agent_directory},
    )


def raise_limits() -> None:
    """Raise the soft limits of open files, locked memory and processes to the hard limits. sshd sets 1024 files."""
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NPROC):
        hard = resource.getrlimit(limit)[1]
        resource.setrlimit(limit, (hard, hard))


def become(spec: RunSpec, module: Sequence[str]) -> None:
    """Replace this process with the rank's program, or with `module` (`-m MODULE ...`) if it is not empty.

    First raises resource limits and gives up privileges. Without `module`, also starts the node's watchdog if this rank
    must (`must_start_watchdog`), and binds the rank of a user program to its cores. Never returns. Raises OSError or
    SecretsError if the program cannot be started.
    """
    inherited = {
        **os.environ,
        **rank_user.variables(),
        **rank_user.make_temporary_directory(),
        **efa.plugin_variables(os.environ),
    }
    if "HOROVOD_HOSTNAME" not in inherited and (host := this_host(spec)) is not None:  # mpirun does not set it
        inherited["HOROVOD_HOSTNAME"] = host.name
    names = {host.name: host for host in spec.hosts}
    inherited |= node_variables(spec.hosts, names.get(inherited.get("HOROVOD_HOSTNAME", "")))
    interface = interface_of(spec, inherited.get("HOROVOD_HOSTNAME", ""))
    raise_limits()
    rank_user.renounce_privileges()
    rank_user.try_firewall()
    if module:
        os.execve(sys.executable, [sys.executable, *module], inherited | on_interface(spec, interface))
    command = spec.rank_command(sys.executable, place_values(spec.hosts, inherited))
    secrets = secret_files.read(secret_files.node_directory(rank_user.home()), spec.run_id, spec.secrets)
    if must_start_watchdog(spec, inherited) and not start_watchdog(spec, inherited):
        print(
            "warning: cannot start the watchdog of this node's ranks, so hanging ranks are not detected; "
            "if memory or the number of processes is exhausted, use fewer ranks per node",
            file=sys.stderr,
        )
    if spec.program and spec.placement == PLACED:
        inherited |= bind_program(spec, inherited, secrets)
    try:
        os.chdir(spec.working_directory)
        os.execvpe(command[0], command, environment(spec, inherited, sys.executable, interface) | secrets)
    except OSError as error:
        # After a search in PATH, the name is the last file that was tried, as bytes.
        file = "" if isinstance(error.filename, bytes) else f"{error.filename}: "
        advice = "; check the command in --entry" if spec.program and error.filename != spec.working_directory else ""
        where = f"cannot start {command[0]} in {spec.working_directory}"
        raise OSError(f"{where}: {file}{error.strerror}{advice}") from None


def main(argv: Sequence[str]) -> int:
    """Become the rank of the run in the directory `argv[0]`. If that fails, print the error and return NOT_STARTED."""
    directory, *module = argv
    try:
        become(RunSpec.read(directory), module)
    except SpecError as error:
        print(f"{directory}/spec.json: {error}", file=sys.stderr)
    except (OSError, secret_files.SecretsError) as error:
        print(describe(error), file=sys.stderr)
    return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
