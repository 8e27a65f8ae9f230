"""Time the first training step with `fab train` and with plain horovodrun: python -m benchmarks.first_step.

    python -m benchmarks.first_step [--hosts N ...] [--repeat R]

It starts its own embedded cloud, and needs root. All tools run the same small program on the same hosts, in turns. A
figure is the median of its samples. The figures are stored in figures.json.

- fab train: from Enter on the laptop; the program and the payload are uploaded, and the allreduce is tested
- horovodrun: started on the master, with the flags, interfaces and interpreter that `fab train` uses
- without check: the same without horovodrun's import of TensorFlow, which checks for Gloo

The last two listen on the master for their ranks, so a firewall rule admits the workers there.

Before, each tool starts once without being recorded, except `fab train` on new nodes, which first tests an allreduce.
All times are from this machine's clock. The exit status is 1 if `fab train` exceeds its promised delay after
horovodrun.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import re
import shlex
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks import figures
from benchmarks.clouds import on_laptop, output_of, running_cloud
from cluster import demo

CLOUD: Final = "firststep"
laptop = functools.partial(on_laptop, CLOUD)
OURS: Final = "fab train"
BARE: Final = "horovodrun"
UNCHECKED: Final = "without check"
STEP: Final = """
import time
import horovod.tensorflow as hvd
import tensorflow as tf
hvd.init()
weights = tf.Variable(tf.ones([1000]))
with tf.GradientTape() as tape:
    loss = tf.reduce_sum(weights**2)
weights.assign_sub(0.1 * hvd.allreduce(tape.gradient(loss, weights)))
if hvd.rank() == 0:
    print(f"first step {time.time():.3f}", flush=True)
"""
PROGRAM: Final = "first_step.py"
RANK: Final = "agent.launch.rank"
ADMIT: Final = """
import boto3
ec2 = boto3.client("ec2")
group = {}
for role in ("master", "worker"):
    (found, *_) = ec2.describe_instances(Filters=[
        {"Name": "tag:deepcdk:role", "Values": [role]}, {"Name": "instance-state-name", "Values": ["running"]},
    ])["Reservations"]
    group[role] = found["Instances"][0]["SecurityGroups"][0]["GroupId"]
ec2.authorize_security_group_ingress(GroupId=group["master"], IpPermissions=[
    {"IpProtocol": "tcp", "FromPort": 1024, "ToPort": 65535, "UserIdGroupPairs": [{"GroupId": group["worker"]}]},
])
"""
"""Runs on the laptop. It lets workers connect to bare horovodrun on the master."""


def promise_s(hosts: int) -> float:
    """Return how many seconds later than horovodrun `fab train` may start: 2 on two hosts, 4 on sixteen, and linear."""
    return 2 + (hosts - 2) / 7


def seconds_to_step(output: str) -> float:
    """Return the seconds from the time on the first line of `output` to the time of the first step, which the program
    printed.

    Raises RuntimeError if the program printed no time.
    """
    steps = re.findall(r"first step ([0-9.]+)", output)
    if not steps:
        raise RuntimeError(f"the program did not print `first step`; its output:\n{output[-3000:]}")
    return float(steps[-1]) - float(output.split(maxsplit=1)[0])


def timed(command: Sequence[str]) -> str:
    """Return a shell line that prints the current time and then executes a command."""
    return f"date +%s.%N; exec {shlex.join(command)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """A cluster that has run the program once with `fab train`."""

    train: tuple[str, ...]
    """Command for `fab train` on the laptop."""
    launcher: tuple[str, ...]
    """Command that `fab train` started on the master: its environment's Python, the agent's launcher, and flags."""
    rank: tuple[str, ...]
    """Command of each rank, with the Python of the workers' runtime."""
    directory: str
    """Directory of the pushed payload on the master."""
    config: str
    """The laptop's ssh_config."""
    first_s: float
    """Time until the first step on new nodes, s."""

    def command(self, tool: str) -> list[str]:
        """Return the laptop's command that starts the program with `tool`.

        It prints the time of its start and of the first step.
        """
        if tool == OURS:
            return laptop("sh", "-c", timed(self.train))
        python, flags = self.rank[0], self.launcher[3:]
        if tool == BARE:
            # Start it with its interpreter, because the script's first line contains the path of the build.
            line = timed([python, str(Path(python).with_name("horovodrun")), *flags, *self.rank])
        else:
            line = f"cd {shlex.quote(self.directory)}; {timed([*self.launcher, *self.rank])}"
        return laptop("ssh", "-F", self.config, "deepcdk-master", line)


def parse_record(record: dict[str, dict[str, object]]) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return the launcher's command without the rank's, the words of the rank's command, and the payload's directory.

    `record`: the output of `fab show --json`. The rank's command is its Python and the path of the program.
    """
    command, spec = [str(word) for word in record["launch"]["command"]], record["spec"]  # type: ignore[attr-defined]  # a list, as the record says
    at = command.index(RANK) - 2  # after the ranks' interpreter and -m
    program = f"{spec['efs_mount']}/payloads/{spec['program']}/program/{PROGRAM}"
    return tuple(command[:at]), (command[at], program), str(record["launch"]["directory"])


@contextmanager
def field_of(hosts: int) -> Iterator[Field]:
    """Run an embedded cloud with this number of workers for a block, and yield its cluster.

    Each tool has then started the program there once.
    """
    settings = demo.settings(hosts)
    with running_cloud(CLOUD), tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        (Path(directory) / PROGRAM).write_text(STEP)
        output_of(laptop("fab", "up", "--yes", *settings))
        config = json.loads(output_of(laptop("fab", "ssh-config", "--json", *settings)))["config"]
        program = ("--payload", directory, "--entry", PROGRAM, "--yes")
        # Keep byte code, as is the default.
        fab = ("env", "-u", "PYTHONDONTWRITEBYTECODE", "fab")
        train = (*fab, "train", "--nodes", str(hosts), *settings, *program)
        first_s = seconds_to_step(output_of(laptop("sh", "-c", timed(train))))
        launcher, rank, pushed = parse_record(json.loads(output_of(laptop("fab", "show", "--json", *settings))))
        field = Field(train=train, launcher=launcher, rank=rank, directory=pushed, config=config, first_s=first_s)
        output_of(laptop(sys.executable, "-c", ADMIT))
        for tool in (BARE, UNCHECKED):
            output_of(field.command(tool))
        yield field


def measure(hosts: int, repeat: int) -> bool:
    """Take the samples for one number of hosts, in turns; print and store them. Return whether the promise is kept."""
    with field_of(hosts) as field:
        samples: dict[str, list[float]] = {tool: [] for tool in (OURS, BARE, UNCHECKED)}
        for _ in range(repeat):
            for tool, taken in samples.items():
                taken.append(round(seconds_to_step(output_of(field.command(tool))), 3))
                print(f"{hosts:3} hosts  {tool:16}{taken[-1]:8.2f} s, sample {len(taken)} of {repeat}", flush=True)
    medians = {tool: statistics.median(taken) for tool, taken in samples.items()}
    for tool, median in medians.items():
        print(f"{hosts:3} hosts  {tool:16}{median:8.2f} s, median", flush=True)
    later = medians[OURS] - medians[BARE]
    kept = later <= promise_s(hosts)
    bound = f"at most {promise_s(hosts):g} s later: {'kept' if kept else 'NOT kept'}"
    apart = f"{abs(later):.2f} s {'later' if later > 0 else 'sooner'} than horovodrun"
    print(f"{hosts:3} hosts  fab train is {apart}, {bound}", flush=True)
    print(f"{hosts:3} hosts  fab train on new nodes {field.first_s:.2f} s (one sample)", flush=True)
    figures.keep({f"first step, {hosts} hosts: {tool}": [median] for tool, median in medians.items()})
    return kept


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and store the figures; return 1 if a promise is not kept, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.first_step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 16], help="numbers of workers (default 2 16)")
    parser.add_argument("--repeat", type=int, default=3, help="samples of each figure (default 3)")
    options = parser.parse_args(argv)
    if min(options.repeat, *options.hosts) < 1:
        parser.error("--hosts and --repeat must be 1 or more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # take the cloud down in any case
    kept = [measure(hosts, options.repeat) for hosts in options.hosts]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
