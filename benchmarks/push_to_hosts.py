"""Time pushes to many hosts, and compare with other tools: python -m benchmarks.push_to_hosts.

    python -m benchmarks.push_to_hosts [--hosts N ...] [--megabytes M ...] [--files F] [--repeat R] [--only TOOL ...]
                                [--limit SECONDS]

It starts its own embedded cloud, and needs root. A figure is the median of its samples. The figures are stored
in figures.json. All tools copy the same files from the laptop to every host, through one bastion:

- deepcdk: `fab stage-data --to local`; every byte is compared by its checksum, on every host
- deepcdk-shared: `fab stage-data`, which puts one copy on the shared file system for all hosts
- rsync: one `rsync -a` for each host at once, over ProxyJump
- parallel-ssh: `copy_file` of the directory, through its proxy
- ansible: its module `copy`, with one process for each host

The bytes of one push on the laptop's link are counted too. Then deepcdk pushes again, with nothing changed. Then
`fab run -- true` on all hosts is compared with parallel-ssh and ansible. A tool that takes longer than `--limit` is
stopped.

parallel-ssh and ansible are installed in .peers-parallel-ssh and .peers-ansible. If the system has no rsync, it is left
out.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import figures, peers
from benchmarks.clouds import on_laptop, output_of, running_cloud
from benchmarks.push_tools import LOCAL_DATA, OURS, REMOTE, SHARED, Fleet, Tool, missing, tools
from cluster import demo

CLOUD: Final = "fanout"
laptop = functools.partial(on_laptop, CLOUD)
UNCHANGED_S: Final = 0.5
COMMAND_RATIO: Final = 1.5
BYTES_RATIO: Final = 1.1
"""Maximum ratio of bytes on the laptop's link, largest to smallest number of hosts: one payload plus a few per host."""


@contextmanager
def fleet_of(hosts: int) -> Iterator[Fleet]:
    """Deploy a cluster with this number of workers on a new embedded cloud for a block, and yield the cluster.

    Raises RuntimeError if the cluster has another number of workers.
    """
    settings = tuple(demo.settings(hosts))
    with running_cloud(CLOUD):
        output_of(laptop("fab", "up", "--yes", *settings))
        home = output_of(laptop("sh", "-c", "echo ~")).strip()
        found = json.loads(output_of(laptop("fab", "ssh-config", "--json", *settings)))["hosts"]
        addresses = {alias: entry["address"] for alias, entry in found.items()}
        workers = tuple(address for alias, address in addresses.items() if not alias.endswith("master"))
        if len(workers) != hosts:
            raise RuntimeError(f"the cluster has {len(workers)} workers instead of {hosts}; repeat the benchmark")
        yield Fleet(
            user="ec2-user",
            key=f"{home}/.ssh/id_ed25519",
            bastion=next(address for alias, address in addresses.items() if alias.endswith("master")),
            hosts=workers,
            settings=settings,
        )


def fill(directory: Path, megabytes: float, files: int) -> None:
    """Write `files` files of random bytes, `megabytes` in total, in folders of a hundred. They cannot be compressed."""
    size = int(megabytes * 1e6 / files)
    for number in range(files):
        path = directory / f"{number // 100:03d}" / f"{number:06d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))


def on_hosts(fleet: Fleet, script: str) -> None:
    """Run a shell script as root on all hosts. Raises RuntimeError if it fails on any host."""

    def run(host: str) -> str:
        return output_of(demo.localcloud("exec", "--name", CLOUD, host, "--", "sh", "-c", script))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, fleet.hosts))


def clean(fleet: Fleet) -> None:
    """Remove the pushed files from all hosts and from the shared file system."""
    on_hosts(fleet, f"rm -rf /home/*/{REMOTE}* {LOCAL_DATA}/{REMOTE}* {LOCAL_DATA}/.{REMOTE}*")
    shared = f"rm -rf /mnt/efs/data/{REMOTE}* /mnt/efs/data/.{REMOTE}*"
    output_of(laptop("fab", "run", "--master", *fleet.settings, "--", "sh", "-c", shared))


def check(fleet: Fleet, tool: Tool, files: int) -> None:
    """Raise RuntimeError unless every host has this number of pushed files."""
    on_hosts(fleet, f"test $(find {tool.place} -type f | wc -l) -eq {files}")


def time_of(command: Sequence[str], limit_s: float | None = None) -> float:
    """Run a command on the laptop and return its wall time, s; infinite if it was stopped after `limit_s`.

    Raises RuntimeError if the command fails.
    """
    began = time.monotonic()
    try:
        output_of(laptop(*(["timeout", str(limit_s)] if limit_s else []), *command))
    except RuntimeError as error:
        if limit_s and time.monotonic() - began >= limit_s:
            return float("inf")
        raise error from None
    return time.monotonic() - began


def link_bytes() -> int:
    """Return the bytes that the cloud's laptop has received and sent since its start. The loopback does not count."""
    return parse_link_bytes(output_of(laptop("cat", "/proc/net/dev")))


def parse_link_bytes(text: str) -> int:
    """Add up the byte counters in /proc/net/dev, except for the loopback interface."""
    rows = re.findall(r"^ *(\S+): *(.*)$", text, flags=re.MULTILINE)
    return sum(int(words.split()[0]) + int(words.split()[8]) for name, words in rows if name != "lo")


class Book:
    """Print measurements as they are made, and record them with the verdicts."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []
        self.verdicts: list[dict[str, Any]] = []
        self.ratios: dict[str, list[float]] = {}

    def keep(self, what: str, hosts: int, samples: Mapping[str, Sequence[float]], **further: Mapping[str, Any]) -> None:
        """Record and print one measurement: the median of each tool's samples, printed with its ratio to deepcdk's.

        `samples` are keyed by tool; `further`: more facts, each keyed by tool.
        """
        ours = statistics.median(samples[OURS])
        for name, taken in samples.items():
            median = statistics.median(taken)
            facts = {key: values[name] for key, values in further.items() if name in values}
            said = "".join(f"  {key} {value}" for key, value in facts.items())
            shown = "stopped" if median == float("inf") else f"{median:.2f} s"
            print(f"{what:58}{hosts:4} hosts  {name:14}{shown:>10}{median / ours:8.2f} x{said}", flush=True)
            figure = {"what": what, "hosts": hosts, "tool": name, "median": median, "samples": list(taken), **facts}
            self.figures.append(figure)

    def judge(self, promise: str, kept: bool, found: str) -> None:
        """Record and print a promised limit, the measurement `found`, and whether it kept the limit."""
        print(f"  {promise}: {found}: {'kept' if kept else 'NOT kept'}", flush=True)
        self.verdicts.append({"promise": promise, "found": found, "kept": kept})

    def median(self, what: str, hosts: int, tool: str = OURS) -> float:
        """Return the median, in seconds, of a measurement that was kept before, by its name, number of hosts and tool.

        Raises StopIteration if there is none.
        """
        return next(
            float(f["median"]) for f in self.figures if (f["what"], f["hosts"], f["tool"]) == (what, hosts, tool)
        )

    def results(self) -> dict[str, list[float]]:
        """Return the values for figures.json, by name: the medians of the measurements, s, and the ratios of bytes.

        A tool that was stopped at its time limit (infinite median) is left out. `judge_bytes` computes the ratios.
        """
        medians = {f"{f['what']}, {f['hosts']} hosts: {f['tool']}": [float(f["median"])] for f in self.figures}
        return {**{name: each for name, each in medians.items() if each != [float("inf")]}, **self.ratios}

    def judge_bytes(self, what: str) -> None:
        """Judge the ratio of the bytes of `fab stage-data --to local` between the largest and the smallest number of
        hosts.

        `what` is the name of the push. Nothing is judged if only one number of hosts was measured.
        """
        ours = {f["hosts"]: f["bytes"] for f in self.figures if f["what"] == what and f["tool"] == OURS}
        fewest, most = min(ours), max(ours)
        if fewest != most:
            ratio = ours[most] / ours[fewest]
            self.ratios[f"{what}: bytes"] = [ratio]
            self.judge(
                f"{what}: bytes independent of the hosts (at most {BYTES_RATIO:g} x)",
                ratio <= BYTES_RATIO,
                f"{ratio:.3f} x from {fewest} to {most} hosts",
            )


def measure_push(
    book: Book, fleet: Fleet, chosen: Sequence[Tool], what: str, megabytes: float, options: argparse.Namespace
) -> None:
    """Time pushes of one amount of data with each tool in turn, then pushes of unchanged data with deepcdk.

    The results are recorded and judged in `book`. `what`: name of the measurement. `options` has the flags --files,
    --repeat and --limit.
    """
    hosts = len(fleet.hosts)
    samples: dict[str, list[float]] = {tool.name: [] for tool in chosen}
    link: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        fill(Path(directory), megabytes, options.files)
        for _ in range(options.repeat):
            for tool in chosen:
                if float("inf") in samples[tool.name]:
                    continue
                clean(fleet)
                before = link_bytes()
                samples[tool.name].append(round(time_of(tool.push(fleet, Path(directory)), options.limit), 3))
                link[tool.name] = link_bytes() - before
                if samples[tool.name][-1] < float("inf"):
                    check(fleet, tool, options.files)
        book.keep(what, hosts, samples, bytes=link)
        medians = {name: statistics.median(taken) for name, taken in samples.items()}
        for mine in (OURS, SHARED):
            for name in sorted(medians.keys() - {OURS, SHARED}):
                ours, theirs = medians[mine], medians[name]
                how = "that was stopped" if theirs == float("inf") else f"{theirs / ours:.2f} times as fast"
                book.judge(f"{what}, {hosts} hosts: {mine} ahead of {name}", ours < theirs, how)
        command = chosen[0].push(fleet, Path(directory))
        clean(fleet)
        output_of(laptop(*command))
        measure_again(book, hosts, what, command, options.repeat)


def measure_again(book: Book, hosts: int, what: str, command: Sequence[str], repeat: int) -> None:
    """Time pushes of unchanged data: the whole command, and from the connection to the master (as the task reports).

    The results are recorded and judged in `book`.
    """
    whole, connected = [], []
    for _ in range(repeat):
        began = time.monotonic()
        told = json.loads(output_of(laptop(*command, "--json")))
        whole.append(round(time.monotonic() - began, 3))
        connected.append(told["seconds"])
    for part, taken in (("unchanged", whole), ("unchanged, once connected", connected)):
        book.keep(f"{what}, {part}", hosts, {OURS: taken})
        found = statistics.median(taken)
        promise = f"{what}, {part}, {hosts} hosts: within {UNCHANGED_S} s"
        book.judge(promise, found <= UNCHANGED_S, f"{found:.2f} s")


def measure_commands(book: Book, fleet: Fleet, chosen: Sequence[Tool], options: argparse.Namespace) -> None:
    """Time running `true` on all hosts with each tool, and `fab push` of an unchanged payload.

    The results are recorded and judged in `book`. Tools without a command are left out. `options` has the flags
    --repeat and --limit.
    """
    hosts = len(fleet.hosts)
    clean(fleet)
    taken: dict[str, list[float]] = {tool.name: [] for tool in chosen if tool.command}
    for _ in range(options.repeat):
        for tool in chosen:
            if tool.command and float("inf") not in taken[tool.name]:
                taken[tool.name].append(round(time_of(tool.command(fleet), options.limit), 3))
    book.keep("run true", hosts, taken)
    for name in taken:
        if name != OURS:
            ratio = book.median("run true", hosts) / book.median("run true", hosts, name)
            promise = f"run true, {hosts} hosts: within {COMMAND_RATIO} times {name}"
            book.judge(promise, ratio <= COMMAND_RATIO, f"{ratio:.2f} times")
    output_of(laptop("fab", "push", *fleet.settings))
    measure_again(book, hosts, "fab push", ["fab", "push", *fleet.settings], options.repeat)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and store the figures; return 1 if a measurement exceeds its limit, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.push_to_hosts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[16, 64], help="numbers of workers (default 16 64)")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[5, 500], help="amounts (default 5 500)")
    parser.add_argument("--files", type=int, default=2000, help="files of each amount (default 2000)")
    parser.add_argument("--repeat", type=int, default=3, help="samples of each figure (default 3)")
    parser.add_argument("--only", nargs="+", metavar="TOOL", help="compare deepcdk only with these tools")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="seconds after which a tool is stopped (default 300)"
    )
    options = parser.parse_args(argv)
    if min(options.repeat, options.files, *options.hosts) < 1 or min(options.limit, *options.megabytes) <= 0:
        parser.error("--hosts, --megabytes, --files, --repeat and --limit must be more than 0")
    chosen = []
    for tool in tools():
        if options.only and tool.name not in (OURS, SHARED, *options.only):
            continue
        if lack := missing(tool):
            print(f"{tool.name} is left out: {lack}", flush=True)
            continue
        if tool.name in peers.PACKAGES:
            peers.install(tool.name)
        chosen.append(tool)
    book = Book()
    for hosts in options.hosts:
        with fleet_of(hosts) as fleet:
            for amount in options.megabytes:
                measure_push(book, fleet, chosen, pushed(amount, options.files), amount, options)
            measure_commands(book, fleet, chosen, options)
    for amount in options.megabytes:
        book.judge_bytes(pushed(amount, options.files))
    figures.keep(book.results())
    return 0 if all(verdict["kept"] for verdict in book.verdicts) else 1


def pushed(megabytes: float, files: int) -> str:
    """Return the name of the measurement of a push with this amount of data."""
    return f"push {megabytes:g} MB in {files:,} files"


if __name__ == "__main__":
    sys.exit(main())
