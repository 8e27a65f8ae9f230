"""The promises of the project: time each part of the whole path on one machine, and compare: python -m benchmarks.

    python -m benchmarks [--repeat N] [--only WORD ...]
    python -m benchmarks --peers [--repeat N]

Each figure is the median of its samples. The figures are stored in figures.json. This needs root. `--peers` only
compares the start of `fab` with other tools, in turns. It installs them in .peers-NAME.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks import figures, peers
from benchmarks.clouds import on_laptop, output_of, running_cloud, seconds
from cluster import demo
from tests.stacks.clusters.eight import CLUSTERS, Cluster

CLOUD = "bench"
laptop = functools.partial(on_laptop, CLOUD)
GROW = """
import boto3, json, sys, time
stacks = boto3.client("cloudformation").describe_stacks(StackName="deepcdk")["Stacks"]
group = next(o["OutputValue"] for o in stacks[0]["Outputs"] if o["OutputKey"] == "WorkerGroupName")
autoscaling, ec2 = boto3.client("autoscaling"), boto3.client("ec2")
began = time.time()
autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=int(sys.argv[1]))
pages = ec2.describe_instances(Filters=[{"Name": "tag:deepcdk:role", "Values": ["worker"]}])["Reservations"]
addresses = [i["PrivateIpAddress"] for page in pages for i in page["Instances"]]
master = ec2.describe_instances(Filters=[{"Name": "tag:deepcdk:role", "Values": ["master"]}])["Reservations"]
print(json.dumps({"began": began, "addresses": addresses, "master": master[0]["Instances"][0]["InstanceId"]}))
"""
"""Runs on the laptop. It grows the worker group, and prints the start time and the workers' addresses."""
GREET = """
import socket, sys, time
for address in sys.argv[1:]:
    while True:
        try:
            with socket.create_connection((address, 22), timeout=5) as connection:
                if connection.recv(4) == b"SSH-":
                    break
        except OSError:
            time.sleep(0.01)
print(time.time())
"""
"""Runs on the master. It waits until the sshd of each worker responds, and prints the time of the last response."""
AGAIN: Final = """
import sys, time
from tests.stacks.clusters.eight import CLUSTERS
from tests.stacks.clusters.synthesis import synthesise
config = CLUSTERS[sys.argv[1]].config()
synthesise(config)
began = time.monotonic()
synthesise(config)
print("seconds:", time.monotonic() - began)
"""
"""Synthesises a cluster twice, and prints how long the second time took. CDK prints warnings between other lines."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measure:
    """Description of one measurement: how to take it, and the bound that the project promises."""

    name: str
    unit: str
    promise: float
    """Upper bound in `unit`, or lower bound if `at_least` is set."""
    take: Callable[[], float]
    at_least: bool = False
    warm_up: bool = False
    """Measure once, without recording it, before the first sample."""

    def kept(self, value: float) -> bool:
        """Return whether a value is within the promised bound."""
        return value >= self.promise if self.at_least else value <= self.promise


PEERS: Final = ("sky", "dstack", "pcluster", "ray")
"""Commands of the other tools."""


def compare_starts(repeat: int) -> None:
    """Measure the start of `fab --list` and of each other tool's `--help`, in turns; print and store the results.

    The other tools are installed first.
    """
    commands = [["fab", "--list"]]
    for tool in PEERS:
        peers.install(tool)
        commands.append([str(peers.environment_of(tool) / "bin" / tool), "--help"])
    rounds = [[seconds(command) for command in commands] for _ in range(repeat + 1)][1:]  # the first one warms up
    results = {
        f"start: {Path(command[0]).name}": [statistics.median(taken), min(taken), max(taken)]
        for command, taken in zip(commands, zip(*rounds, strict=True), strict=True)
    }
    for name, (median, least, most) in results.items():
        print(f"{name:44}{median:8.2f} s ({least:.2f} to {most:.2f})", flush=True)
    figures.keep(results, versions=dict(peers.PACKAGES[tool].split("==") for tool in PEERS))


def up_to_deployed() -> float:
    """Return the time, s, to start a new embedded cloud, bootstrap it and deploy a cluster of two workers."""
    began = time.monotonic()
    with running_cloud(CLOUD):
        output_of(laptop("fab", "up", "--yes", *demo.settings(2)))
        return time.monotonic() - began


def status_once() -> float:
    """Deploy a cluster on a new embedded cloud. Return the time, s, of its second `fab status`."""
    with running_cloud(CLOUD):
        output_of(laptop("fab", "up", "--yes", *demo.settings(2)))
        output_of(laptop("fab", "status"))
        return seconds(laptop("fab", "status"))


def sixteen_hosts() -> float:
    """Grow a cluster on a new embedded cloud from 0 to 16 hosts.

    Return the time, s, from SetDesiredCapacity until the sshd of each host has responded to the master. Raises
    RuntimeError unless the group then has sixteen workers.
    """
    with running_cloud(CLOUD):
        output_of(laptop("fab", "up", "--yes", *demo.settings(2), "--set", "workers=0"))
        grown = json.loads(output_of(laptop(sys.executable, "-c", GROW, "16")))
        if len(grown["addresses"]) != 16:
            raise RuntimeError(f"the cluster has {len(grown['addresses'])} workers instead of 16; repeat the benchmark")
        greet = ["exec", "--name", CLOUD, grown["master"], "--", "/opt/deepcdk/bin/python3", "-c", GREET]
        return float(output_of(demo.localcloud(*greet, *grown["addresses"]))) - float(grown["began"])


def scaled_up(workers: int) -> float:
    """Deploy two workers on a new embedded cloud. Return the time, s, of `fab scale` to this number, and then of a
    command on all workers.
    """
    with running_cloud(CLOUD):
        settings = demo.settings(workers)
        output_of(laptop("fab", "up", "--yes", *settings, "--set", "workers=2"))
        options = shlex.join(settings)
        return seconds(laptop("sh", "-c", f"fab scale {workers} --yes {options} && fab run {options} -- true"))


def digits_accuracy(ranks: int) -> float:
    """Train the recipe digits on local ranks of this number, global batch 64; return the test accuracy in percent."""
    with tempfile.TemporaryDirectory() as directory:
        train = [sys.executable, "-m", "payload.train", "--recipe", "digits", "--global-batch", "64"]
        launcher = [
            sys.executable,
            "-m",
            "agent.launch.horovodrun",
            "-np",
            str(ranks),
            "-H",
            f"localhost:{ranks}",
            "--gloo",
        ]
        output_of([*launcher, *train, "--run-dir", directory])
        result = json.loads((Path(directory) / "result.json").read_text())
        return 100 * float(result["test_accuracy"])


def synths() -> list[Measure]:
    """Describe the measurements of each example cluster: a whole `cdk synth`, and a second synthesis in one process."""
    by_the_cli = [
        Measure(
            name=f"cdk synth, warm: {name}", unit="s", promise=10, take=functools.partial(_synth, cluster), warm_up=True
        )
        for name, cluster in CLUSTERS.items()
    ]
    in_process = [
        Measure(name=f"synth in process: {name}", unit="s", promise=1, take=functools.partial(again, name))
        for name in CLUSTERS
    ]
    return [*by_the_cli, *in_process]


def _synth(cluster: Cluster) -> float:
    with tempfile.TemporaryDirectory() as directory:
        return seconds(["cdk", "synth", "--quiet", *cluster.words, "--output", directory])


def again(name: str) -> float:
    """Return the time, s, of the second of two syntheses of this example cluster in one process."""
    output = output_of([sys.executable, "-c", AGAIN, name])
    return float(re.findall(r"^seconds: (.*)$", output, re.MULTILINE)[-1])


def measures() -> list[Measure]:
    """Describe all measurements that `python -m benchmarks` can take."""
    return [
        Measure(name="fab --list", unit="s", promise=0.7, take=lambda: seconds(["fab", "--list"]), warm_up=True),
        *synths(),
        Measure(name="embedded cloud up, bootstrapped, deployed", unit="s", promise=25, take=up_to_deployed),
        Measure(name="fab status", unit="s", promise=2, take=status_once),
        Measure(name="sixteen hosts up", unit="s", promise=3, take=sixteen_hosts),
        Measure(name="fab scale, 2 to 16", unit="s", promise=20, take=lambda: scaled_up(16)),
        Measure(name="fab scale, 2 to 64", unit="s", promise=75, take=lambda: scaled_up(64)),
        Measure(
            name="demo, everything cached",
            unit="s",
            promise=150,
            take=lambda: seconds([sys.executable, "-m", "deepcdk", "demo"]),
        ),
        Measure(
            name="digits, test accuracy, 2 ranks",
            unit="%",
            promise=98,
            take=lambda: digits_accuracy(2),
            at_least=True,
        ),
        Measure(
            name="digits, 2 ranks against 1, global batch 64",
            unit="points",
            promise=0.5,
            take=lambda: abs(digits_accuracy(2) - digits_accuracy(1)),
        ),
    ]


def results(medians: Mapping[str, float]) -> dict[str, list[float]]:
    """Return what figures.json stores: by name, the median of a measurement. `medians` are by name too.

    Measurements `NAME: CLUSTER` become one result, NAME, with the lowest and the highest median of all clusters. They
    are left out unless all clusters were measured.
    """
    groups: dict[str, list[str]] = {}
    for measure in measures():
        groups.setdefault(measure.name.partition(":")[0], []).append(measure.name)
    found = {name: [medians[each] for each in members if each in medians] for name, members in groups.items()}
    return {
        name: sorted({min(values), max(values)}) for name, values in found.items() if len(values) == len(groups[name])
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print a table and store the results; return 1 if a promise is not kept, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3, help="samples of each figure (default 3)")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only figures whose name contains one of these")
    parser.add_argument("--peers", action="store_true", help="only compare the start of fab with other tools")
    options = parser.parse_args(argv)
    if options.repeat < 1:
        parser.error(f"--repeat must be 1 or more, not {options.repeat}")
    if options.peers:
        compare_starts(options.repeat)
        return 0
    chosen = [m for m in measures() if not options.only or any(word in m.name for word in options.only)]
    if not chosen:
        parser.error(
            f"--only {' '.join(options.only)} matches no figure; the figures are: "
            f"{', '.join(m.name for m in measures())}"
        )
    medians, all_kept = dict[str, float](), True
    for measure in chosen:
        if measure.warm_up:
            measure.take()
        medians[measure.name] = median = statistics.median(measure.take() for _ in range(options.repeat))
        kept = measure.kept(median)
        all_kept = all_kept and kept
        bound = f"{'at least' if measure.at_least else 'at most'} {measure.promise:g}"
        print(f"{measure.name:44}{median:8.2f} {measure.unit:7}{bound:14}{'kept' if kept else 'MISSED'}", flush=True)
    figures.keep(results(medians))
    return 0 if all_kept else 1


if __name__ == "__main__":
    sys.exit(main())
