"""The command line: start, stop and inspect a cloud, and run commands on its laptop and in its hosts."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from localcloud import control_socket, laptop, lifecycle, start_options
from localcloud.chaos import chaos_command
from localcloud.cloud_paths import Layout
from localcloud.errors import LocalCloudError, UnknownInstanceError, error_text
from localcloud.hosts import cpu_limit
from localcloud.machines import sockets

_COLUMNS: Final = ("instance_id", "name", "private_ip", "public_ip", "pid", "network", "user_data")


def run() -> NoReturn:
    """Run the command line of this process, and exit with its code."""
    sys.exit(main(sys.argv[1:]))


def main(argv: Sequence[str]) -> int:
    """Run one command; return the exit code: 0 for success, 1 for an error, 130 after Ctrl-C. Errors are printed.

    A command on a host or on the laptop replaces this process, so its exit code is the result; 126 or 127 if it cannot
    be started. Invalid arguments raise SystemExit(2). If the reader of the output exits first, the result is 0.
    """
    try:
        arguments = _parser().parse_args(argv)
        code: int = arguments.run(arguments)
        return code
    except LocalCloudError as error:
        print(f"localcloud: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("localcloud: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:  # for example, a full disk
        print(f"localcloud: {error_text(error)}", file=sys.stderr)
        return 1


def _notice_s(text: str) -> float:
    """Parse the seconds of a notice, 0 to 86,400. Raises argparse.ArgumentTypeError."""
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) <= 86_400:
            return seconds
    raise argparse.ArgumentTypeError(f"must be 0 to 86400 seconds, not {text}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m localcloud", description="AWS on one machine: an API, real hosts and real networks. Needs root."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, help: str, run: Any) -> argparse.ArgumentParser:
        # argparse only lists commands with a help text. The two internal commands of `start` have none.
        shown: dict[str, Any] = {"help": help} if help else {}
        command = commands.add_parser(name, description=help, **shown)
        command.add_argument("--name", default="lc0", help="name of the cloud (default: lc0)")
        command.set_defaults(run=run)
        return command

    for role, help, run in (
        ("start", "start a cloud and return when it is ready", _start),
        ("supervise", "", _supervise),
        ("daemon", "", _daemon),
    ):
        command = add(role, help, run)
        start_options.add_arguments(command)
        command.add_argument("--lock", type=int, default=-1, help=argparse.SUPPRESS)
    add("prepare", "install the IAM evaluator through npm if it is missing, and list what else is missing", _prepare)
    add("stop", "stop a cloud and remove everything that belongs to it", _stop)
    add("status", "show a cloud and its hosts", _status).add_argument(
        "--json", action="store_true", help="print all values as JSON, including the laptop's credentials"
    )
    for name, help in (
        ("run", "run a command on the laptop"),
        ("outside", "run a command on a test host on the cloud's internet"),
    ):
        command = add(name, help, _enter)
        command.set_defaults(place={"run": "laptop"}.get(name, name))
        command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    start_options.add_vcpus(
        add("api", "serve only the API, without hosts and without root, until standard input is closed", _api)
    )
    shell = [os.environ.get("SHELL", "/bin/bash")]
    add("shell", "open a shell on the laptop", _enter).set_defaults(place="laptop", command=shell)

    def add_instance(command: argparse.ArgumentParser) -> None:
        command.add_argument("instance", metavar="INSTANCE", help="the instance's id, host name or private IP address")

    command = add("exec", "run a command on a host as root, even if its network is cut", _exec)
    add_instance(command)
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    add_instance(add("kill", "kill every process of a host, like a crash", _kill))
    command = add("logs", "print the last 2,000 lines of a host's console, or of the cloud's own log", _logs)
    command.add_argument(
        "instance", nargs="?", metavar="INSTANCE", help="the instance's id; without it, the cloud's log"
    )
    command = add("interrupt", "interrupt a spot instance, after a notice in its metadata", _interrupt)
    add_instance(command)
    command.add_argument(
        "--notice",
        type=_notice_s,
        default=120.0,
        metavar="SECONDS",
        help="time between the notice and the interruption (default: 120, as on AWS)",
    )
    command.add_argument(
        "--recommendation", action="store_true", help="send only a rebalance recommendation, without an interruption"
    )
    command = add("limit", "limit the capacity for an instance type, or remove the limit", _limit)
    command.add_argument("type", metavar="TYPE", help="instance type, such as c5.2xlarge")
    command.add_argument(
        "count", metavar="COUNT", type=int, nargs="?", help="number of instances; without it, the limit is removed"
    )
    chaos_command.add_arguments(add("chaos", "inject random faults from a seed, and repair temporary ones", _chaos))
    for name, help in (("cut", "drop all packets of a host"), ("mend", "restore the network of a host after cut")):
        command = add(name, help, _cut)
        command.set_defaults(do=name)
        add_instance(command)
    return parser


def _start(arguments: argparse.Namespace) -> int:
    from localcloud import host_kinds  # here and in _daemon: the other commands start in a quarter of the time

    started = time.monotonic()
    chosen = start_options.from_arguments(arguments)
    lifecycle.check(chosen)
    host_kinds.prepare(chosen, os.environ)
    state = lifecycle.start(chosen)
    layout = Layout(name=arguments.name)
    name = "" if arguments.name == "lc0" else f" --name {arguments.name}"
    print(f"embedded cloud {arguments.name} is up after {time.monotonic() - started:.1f} s")
    print(f"  AWS API   {state['endpoint']} (on the laptop and on the hosts)")
    print(f"  laptop    python -m localcloud run{name} -- COMMAND, or shell; home: {layout.laptop}")
    if state["packages"]:
        print(f"  packages  hosts and laptop reach {', '.join(state['packages'])}, through this machine's own network")
    if state["api_faults"] is not None:
        print(f"  faults    of the API, drawn from seed {state['api_faults']}")
    if state["unlimited_volumes"]:
        print(f"  volumes   {_unlimited(state)}")
    print(f"  state     {layout.run}; shared file systems: {layout.efs}")
    print(f"  stop      python -m localcloud stop{name}")
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    from localcloud.api.permissions import evaluator

    if os.geteuid() == 0:  # without root, the check fails
        evaluator.install()
    lifecycle.check(start_options.Options(name=arguments.name))
    print("this machine has everything that `start` needs; --hosts vm, --nfs-client and --cpus may need more")
    return 0


def _supervise(arguments: argparse.Namespace) -> int:
    return lifecycle.supervise(start_options.from_arguments(arguments), arguments.lock)


def _daemon(arguments: argparse.Namespace) -> int:
    from localcloud.daemon import main as run_daemon

    lifecycle.die_with_parent()
    run_daemon(start_options.from_arguments(arguments))
    return 0


def _stop(arguments: argparse.Namespace) -> int:
    started = time.monotonic()
    was_running = lifecycle.stop(arguments.name)
    how = f"stopped after {time.monotonic() - started:.1f} s" if was_running else "was not running"
    print(f"embedded cloud {arguments.name} {how}; all of its resources are removed")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    status = _ask(arguments, "status")
    if arguments.json:
        print(json.dumps(status, indent=2))
        return 0
    print(f"embedded cloud {status['name']}: {status['endpoint']}, state in {status['state_directory']}")
    if status["api_faults"] is not None:
        print(f"API faults drawn from seed {status['api_faults']}")
    if status["unlimited_volumes"]:
        print(f"volumes: {_unlimited(status)}")
    if status["error"]:
        print(f"error: {status['error']}")
    rows = [[str(host[column]) or "-" for column in _COLUMNS] for host in status["hosts"]]
    print(table([[column.replace("_", " ") for column in _COLUMNS], *rows]) if rows else "no hosts")
    return 0


def _unlimited(state: dict[str, Any]) -> str:
    """Return a sentence on why the hosts' volumes do not have the sizes of their launch templates."""
    return f"sizes of launch templates are not enforced: {state['unlimited_volumes']}"


def _enter(arguments: argparse.Namespace) -> int:
    """Replace this process with a command on the laptop or on the outside host. Raises LocalCloudError without root.

    If the command cannot be executed, return 126 or 127.
    """
    layout, command = Layout(name=arguments.name), _command(arguments)
    state = lifecycle.read_state(layout)
    if os.geteuid() != 0:
        raise LocalCloudError("only root can enter the laptop's namespace; repeat the command with sudo")
    variables = laptop.environment(os.environ, layout=layout, endpoint=state["endpoint"])
    sys.stdout.flush()
    return _execute(lambda: laptop.replace_process(state, arguments.place, command, variables), command[0])


def _api(arguments: argparse.Namespace) -> int:
    """Serve the API on a free port of 127.0.0.1 until standard input is closed; return 0.

    Prints its address and credentials as one line of JSON.
    """
    from localcloud.api.cloud import ACCOUNT, REGION, Cloud

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        cloud = Cloud(vcpus=arguments.vcpus)
        cloud.serve(listener)
        served = {
            "endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}",
            "region": REGION,
            "account": ACCOUNT,
            "access_key_id": laptop.ACCESS_KEY_ID,
            "secret_access_key": laptop.SECRET_ACCESS_KEY,
        }
        print(json.dumps(served), flush=True)
        sys.stdin.read()
        cloud.close()
    return 0


def _exec(arguments: argparse.Namespace) -> int:
    """Run a command in a host, as root and without using its network.

    The command replaces this process. If the host is a QEMU machine, the command gets no input, its output is printed
    when it exits, and its exit code is returned.
    """
    host = _host(arguments)
    if host["agent"]:  # a machine, without namespaces on this host: no input, and all output at the end
        done = sockets.execute(Path(host["agent"]), _command(arguments))
        sys.stdout.buffer.write(done.stdout)
        sys.stdout.flush()
        sys.stderr.buffer.write(done.stderr)
        sys.stderr.flush()
        return done.returncode
    if not host["pid"]:
        raise LocalCloudError(
            f"host {host['instance_id']} is not running; print its console with: "
            f"python -m localcloud logs --name {arguments.name} {host['instance_id']}"
        )
    with contextlib.suppress(OSError):  # it exited meanwhile, or the user is not root: nsenter reports it
        cpu_limit.join(host["pid"])
    argv = ["nsenter", "--target", str(host["pid"]), "--all", "--root", "--wd", "--", *_command(arguments)]
    return _execute(lambda: os.execvp(argv[0], argv), argv[0])


def _execute(execute: Any, command: str) -> int:
    """Call `execute`, which replaces this process with `command`. If that fails, print an error and return 126 or
    127.
    """
    try:
        execute()
    except FileNotFoundError:
        print(f"localcloud: {command}: command not found", file=sys.stderr)
        return 127
    except OSError as error:
        print(f"localcloud: {command}: cannot be executed: {error.strerror}", file=sys.stderr)
    return 126


def _kill(arguments: argparse.Namespace) -> int:
    host = _host(arguments)
    if host["pid"]:
        with contextlib.suppress(ProcessLookupError):  # it exited meanwhile
            os.kill(host["pid"], signal.SIGKILL)
    print(f"killed {host['instance_id']} ({host['private_ip']})")
    return 0


def _cut(arguments: argparse.Namespace) -> int:
    host = _host(arguments)
    status = _ask(arguments, arguments.do, instance=host["instance_id"])
    if status["error"]:
        raise LocalCloudError(status["error"])
    print(f"{host['instance_id']} ({host['private_ip']}): network {'cut' if arguments.do == 'cut' else 'mended'}")
    return 0


def _chaos(arguments: argparse.Namespace) -> int:
    return chaos_command.carry_out(Layout(name=arguments.name), arguments)


def _interrupt(arguments: argparse.Namespace) -> int:
    host, notice_s = _host(arguments), arguments.notice
    if arguments.recommendation:
        _ask(arguments, "recommend", instance=host["instance_id"])
        print(f"{host['instance_id']} ({host['private_ip']}) has a rebalance recommendation in its metadata")
        return 0
    _ask(arguments, "interrupt", instance=host["instance_id"], notice_s=str(notice_s))
    print(f"{host['instance_id']} ({host['private_ip']}) is interrupted in {notice_s:g} s; its metadata has the notice")
    return 0


def _limit(arguments: argparse.Namespace) -> int:
    if arguments.count is not None and arguments.count < 0:
        raise LocalCloudError(f"limit {arguments.type} {arguments.count}: the number must be 0 or more")
    count = "" if arguments.count is None else str(arguments.count)
    _ask(arguments, "limit", type=arguments.type, count=count)
    print(f"the capacity of {arguments.type} is {f'limited to {count} instances' if count else 'not limited'}")
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    layout = Layout(name=arguments.name)
    lifecycle.read_state(layout)
    path = layout.console(arguments.instance) if arguments.instance else layout.log
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.log"))) or "none"
        raise LocalCloudError(f"{path} does not exist; INSTANCE must be one of the ids with a console: {known}")
    print("\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-2000:]))
    return 0


def _ask(arguments: argparse.Namespace, do: str, **values: str) -> dict[str, Any]:
    """Send the request `do` to the daemon of the cloud in `arguments`; return its answer. Raises LocalCloudError."""
    return control_socket.request(Layout(name=arguments.name), {"do": do, **values})


def _host(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what the daemon reports of the host that `arguments` name by id, host name or private IP address.

    Raises UnknownInstanceError, or like `_ask`.
    """
    hosts = _ask(arguments, "status")["hosts"]
    for host in hosts:
        if arguments.instance in (host["instance_id"], host["hostname"], host["private_ip"]):
            return dict(host)
    raise UnknownInstanceError(arguments.instance, [host["instance_id"] for host in hosts])


def _command(arguments: argparse.Namespace) -> list[str]:
    """Return the command after `--`. Raises LocalCloudError if it is missing."""
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else list(arguments.command)
    if not command:
        raise LocalCloudError("the command to run is missing; add one, for example: -- aws sts get-caller-identity")
    return command


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows as text in aligned columns, one line per row. All rows have the same number of cells."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)
