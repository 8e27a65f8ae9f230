"""Time what reaches many hosts, ours beside others' tools: python -m benchmarks.fanout.

    python -m benchmarks.fanout [--hosts N ...] [--megabytes M ...] [--files F] [--repeat R] [--only TOOL ...]
                                [--peers DIR] [--output FILE]

On an embedded cloud of its own, which takes root, and with `--hosts 64` some 64 processes of each tool at once. A
figure is the median of its samples. All bring the same files from the laptop to every host, through the one bastion:

- deepcdk: `fab stage-data --to local`; every checksum is compared, twice
- rsync: one `rsync -a` a host at once, over ProxyJump
- ansible: the module `copy`, a fork a host
- parallel-ssh: `copy_file` of the directory, through its proxy
- fabric: a tar by ThreadingGroup.put, unpacked by ThreadingGroup.run, through a gateway

Then a command, `true`, on all hosts: `fab run` beside parallel-ssh. The others' tools are not installed by set-up:
`python3 -m venv .peers && .peers/bin/pip install --group peers`, and rsync by the system's packages; one that is
missing is named and left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.measure import output_of
from tools import demo

CLOUD: Final = "fanout"
REMOTE: Final = "bench-push"
"""The directory in each login user's home that the others write."""
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
FABRIC: Final = """
import sys, tarfile
from fabric import Connection, ThreadingGroup
user, key, bastion, hosts, source, target = sys.argv[1:7]
options = {"key_filename": key}
gateway = Connection(bastion, user=user, connect_kwargs=options)
gateway.open()
with tarfile.open("/tmp/bench-push.tar", "w") as archive:
    archive.add(source, target)
group = ThreadingGroup(*hosts.split(","), user=user, gateway=gateway, connect_kwargs=options)
group.put("/tmp/bench-push.tar", remote="bench-push.tar")
group.run("tar xf bench-push.tar", hide=True)
group.close()
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fleet:
    """Hold the cluster that is measured, as the laptop sees it."""

    user: str
    key: str
    bastion: str
    hosts: tuple[str, ...]
    """The workers' addresses."""
    settings: tuple[str, ...]
    """Words that each task of ours is given."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tool:
    """Say how one tool pushes, and how it runs a command."""

    name: str
    push: Callable[[Fleet, Path], list[str]]
    """Returns the laptop's command that pushes a directory."""
    command: Callable[[Fleet], list[str]] | None
    """Returns the one that runs `true` on all hosts; None: not compared."""
    needs: tuple[str, ...] = ()
    """Programs without which it is missing."""
    modules: tuple[str, ...] = ()
    """Modules of the peers' Python."""


def tools(peers: Path) -> list[Tool]:
    """List ours and the others, of which Python's lie in the environment `peers`."""
    python = str(peers / "bin" / "python")

    def script(text: str, fleet: Fleet, source: str) -> list[str]:
        return [python, "-c", text, fleet.user, fleet.key, fleet.bastion, ",".join(fleet.hosts), source, REMOTE]

    def ansible(fleet: Fleet, source: Path) -> list[str]:
        jump = f"-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ProxyCommand='{_through(fleet)}'"
        variables = {
            "ansible_user": fleet.user,
            "ansible_ssh_private_key_file": fleet.key,
            "ansible_ssh_common_args": jump,
            "ansible_python_interpreter": "/opt/deepcdk/bin/python3",
        }
        arguments = ["-m", "copy", "-a", f"src={source}/ dest={REMOTE}/", "-f", str(len(fleet.hosts)), "-o"]
        inventory = ",".join((*fleet.hosts, ""))
        words = [str(peers / "bin" / "ansible"), "all", "-i", inventory, "-e", json.dumps(variables), *arguments]
        return ["env", "ANSIBLE_HOST_KEY_CHECKING=False", f"PATH={peers}/bin:{os.environ['PATH']}", *words]

    def rsync(fleet: Fleet, source: Path) -> list[str]:
        ssh = f"ssh -i {fleet.key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        each = f'rsync -a -e "$0" "$1/" "{fleet.user}@$h:{REMOTE}/" & p="$p $!"'
        line = f"for h in {' '.join(fleet.hosts)}; do {each}; done"
        waits = "for i in $p; do wait $i || exit 1; done"
        return ["sh", "-c", f"{line}; {waits}", f"{ssh} -o 'ProxyCommand={_through(fleet)}'", str(source)]

    return [
        Tool(
            name="deepcdk",
            push=lambda fleet, source: [
                *("fab", "stage-data", str(source), "--name", REMOTE, "--to", "local"),
                *fleet.settings,
            ],
            command=lambda fleet: ["fab", "run", *fleet.settings, "--", "true"],
        ),
        Tool(name="rsync", push=rsync, command=None, needs=("rsync",)),
        Tool(name="ansible", push=ansible, command=None, needs=(str(peers / "bin" / "ansible"),)),
        Tool(
            name="parallel-ssh",
            push=lambda fleet, source: script(PARALLEL_SSH, fleet, str(source)),
            command=lambda fleet: script(PARALLEL_SSH, fleet, ""),
            needs=(python,),
            modules=("pssh", "gevent"),
        ),
        Tool(
            name="fabric",
            push=lambda fleet, source: script(FABRIC, fleet, str(source)),
            command=None,
            needs=(python,),
            modules=("fabric",),
        ),
    ]


def _through(fleet: Fleet) -> str:
    """Return the ProxyCommand of a jump over the bastion, which unlike -J takes the key and no known_hosts."""
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    return f"ssh -i {fleet.key} {options} -W %h:%p {fleet.user}@{fleet.bastion}"


def missing(tool: Tool, peers: Path) -> str:
    """Return what a tool lacks on this machine; "" where nothing."""
    for program in tool.needs:
        if not shutil.which(program):
            return f"no program {program}"
    for module in tool.modules:
        found = list((peers / "lib").glob(f"python3*/site-packages/{module}"))
        if not found:
            return f"no module {module} in {peers}"
    return ""


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the benchmark's laptop."""
    return demo.localcloud("run", "--name", CLOUD, "--", *command)


@contextmanager
def fleet_of(hosts: int) -> Iterator[Fleet]:
    """Keep a cloud up with so many workers."""
    settings = tuple(demo.settings(hosts))
    output_of(demo.localcloud("start", "--name", CLOUD, *demo.runtime_mount()))
    try:
        output_of(laptop("sh", "-c", demo.shell(demo.SSH_KEYGEN)))
        output_of(laptop("fab", "up", "--yes", *settings))
        home = output_of(laptop("sh", "-c", "echo ~")).strip()
        found = json.loads(output_of(laptop("fab", "ssh-config", "--json", *settings)))["hosts"]
        addresses = {alias: entry["address"] for alias, entry in found.items()}
        workers = tuple(address for alias, address in addresses.items() if not alias.endswith("master"))
        if len(workers) != hosts:
            raise RuntimeError(f"asked for {hosts} workers, got {len(workers)}")
        yield Fleet(
            user="ec2-user",
            key=f"{home}/.ssh/id_ed25519",
            bastion=next(address for alias, address in addresses.items() if alias.endswith("master")),
            hosts=workers,
            settings=settings,
        )
    finally:
        output_of(demo.localcloud("stop", "--name", CLOUD))


def fill(directory: Path, megabytes: float, files: int) -> None:
    """Make so many files of random bytes, which no transport can compress, in folders of a hundred."""
    size = int(megabytes * 1e6 / files)
    for number in range(files):
        path = directory / f"{number // 100:03d}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))


def clean(fleet: Fleet) -> None:
    """Remove from all hosts, and from the shared file system, what was pushed."""
    gone = f"rm -rf ~/{REMOTE}* ~/data/{REMOTE}* ~/data/.{REMOTE}*"
    output_of(laptop("fab", "run", *fleet.settings, "--", "sh", "-c", gone))
    shared = f"rm -rf /mnt/efs/data/{REMOTE}* /mnt/efs/data/.{REMOTE}*"
    output_of(laptop("fab", "run", "--master", *fleet.settings, "--", "sh", "-c", shared))


def check(fleet: Fleet, tool: Tool, files: int) -> None:
    """Raise RuntimeError unless every host has every file."""
    place = f"data/{REMOTE}" if tool.name == "deepcdk" else REMOTE
    line = f"test $(find ~/{place} -type f | wc -l) -eq {files}"
    output_of(laptop("fab", "run", *fleet.settings, "--", "sh", "-c", line))


def time_of(command: Sequence[str]) -> float:
    """Run a command on the laptop and return its wall time."""
    began = time.monotonic()
    output_of(laptop(*command))
    return time.monotonic() - began


def measure(
    fleet: Fleet, chosen: Sequence[Tool], megabytes: Sequence[float], files: int, repeat: int
) -> list[dict[str, object]]:
    """Push each amount with each tool, in turns, and run `true`; print and return the figures."""
    figures: list[dict[str, object]] = []

    def keep(what: str, samples: dict[str, list[float]]) -> None:
        ours = statistics.median(samples["deepcdk"])
        for name, taken in samples.items():
            median = statistics.median(taken)
            print(f"{what:34}{len(fleet.hosts):4} hosts  {name:14}{median:9.2f} s{median / ours:8.2f} x", flush=True)
            figures.append({"what": what, "hosts": len(fleet.hosts), "tool": name, "median": median, "samples": taken})

    for amount in megabytes:
        with tempfile.TemporaryDirectory() as directory:
            source = Path(directory) / "push"
            fill(source, amount, files)
            Path(directory).chmod(0o755)
            samples: dict[str, list[float]] = {tool.name: [] for tool in chosen}
            for _ in range(repeat):
                for tool in chosen:
                    clean(fleet)
                    samples[tool.name].append(round(time_of(tool.push(fleet, source)), 3))
                    check(fleet, tool, files)
            keep(f"push {amount:g} MB in {files:,} files", samples)
    clean(fleet)
    runners = [(tool, tool.command) for tool in chosen if tool.command]
    taken = {tool.name: [round(time_of(command(fleet)), 3) for _ in range(repeat)] for tool, command in runners}
    keep("run true", taken)
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print a table; return 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fanout", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[16, 64], help="numbers of workers (default 16 64)")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[5, 500], help="amounts (default 5 500)")
    parser.add_argument("--files", type=int, default=2000, help="files of each amount (default 2000)")
    parser.add_argument("--repeat", type=int, default=3, help="samples of each figure (default 3)")
    parser.add_argument("--only", nargs="+", metavar="TOOL", help="these tools alone, beside ours")
    parser.add_argument("--peers", type=Path, default=demo.ROOT / ".peers", help="environment of the others' tools")
    parser.add_argument("--output", type=Path, help="write samples and machine here, as JSON")
    options = parser.parse_args(argv)
    if min(options.repeat, options.files, *options.hosts) < 1 or min(options.megabytes) <= 0:
        parser.error("--hosts, --megabytes, --files and --repeat must be more than 0")
    peers = options.peers.absolute()
    chosen = []
    for tool in tools(peers):
        if options.only and tool.name not in ("deepcdk", *options.only):
            continue
        if lack := missing(tool, peers):
            print(f"{tool.name} is left out: {lack}", flush=True)
            continue
        chosen.append(tool)
    figures: list[dict[str, object]] = []
    for hosts in options.hosts:
        with fleet_of(hosts) as fleet:
            figures += measure(fleet, chosen, options.megabytes, options.files, options.repeat)
    if options.output:
        machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
        options.output.write_text(json.dumps({"machine": machine, "figures": figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
