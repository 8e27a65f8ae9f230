"""Record docs/tour.md again: every task once, on an embedded cloud, with what it printed and how long it took.

    .venv/bin/python -m tools.tour [--into docs/tour.md]

The output is not edited, except that `Step.lines` can omit lines and the laptop's home directory is replaced by ~.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment.horovod_build import default_cache
from cluster import demo

CLOUD: Final = "tour"
TIMEOUT_S: Final = 900.0
"""Maximum time of a step, after which it is killed."""
HEAD: Final = """\
# A tour of all tasks

This page shows one session on the embedded cloud, recorded by `python -m tools.tour`: each command, its output and its
time. All hosts of the cloud ran on one machine with {cores} processors. The load average before was {load:.1f}; other
work makes each step slower. The output went to a pipe. On a terminal, there are also boxes, bars and colors.

`cdk.json` contains `ssh_cidr = {cidr}` and `retain_data = false`. Nothing ran on AWS. The prices come from the included
price list. `~/shards` contains four files of random bytes, as large as the shards of a small data set. A line `[...]`
replaces omitted lines.
"""
SHARDS: Final = 4
SHARD_BYTES: Final = 8_000_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the tour."""

    words: tuple[str, ...]
    """The words after `fab`. RUN is the id of the last run, FIRST of the first run, DATA the directory of the data,
    PROJECT a new directory.
    """
    why: str
    status: int = 0
    lines: int = 0
    """Number of lines to show at the start and at the end; 0: all."""
    until: str = ""
    """Press Ctrl-C after a line that contains this text."""


TOUR: Final = """\
## A cluster
init PROJECT | Create a project. The rest of this tour uses a checkout.
doctor | Check whether a deployment would work.
up --yes | Deploy the cluster. | lines=12
up --plan --set worker_instance_type=c5.4xlarge | Show what a change would do.
status --load | Show the nodes and their load.
run -- nproc | Run a command on every worker.
ssh-config | Set up plain ssh, scp and rsync.
## Recipes and data
recipes | List the recipes.
recipes digits | Show a recipe and its settings.
plan --recipe imagenet-fast --nodes 1,4,16 | Estimate the time and cost of a recipe.
prices | List prices and their sources.
stage-data DATA | Copy data to the shared file system. Every file is verified.
stage-data DATA --to local --sharded | \
Copy the data to the workers' own disks too, each file to one worker. The upload is not repeated.
## A run
push | Upload the training program; `fab train` does this too.
train --dry-run | Show what would be launched.
train --epochs 4 | Train on both workers. | lines=16
runs | List all runs.
show RUN | Show the record of a run. | lines=14
logs RUN --rank 1 | Show the log of one rank. | lines=4
fetch RUN | Fetch its results to the laptop. | lines=8
report RUN | Write a page with its curves, figures and settings.
attach RUN | Watch it again from the start. | lines=4
bench --nodes 1,2 --networks lenet --message-bytes 1024,1048576 | \
Measure the speed of the nodes and of the network between them. | lines=10
dashboard --port 6005 | Show the cluster and its runs in the browser. Ctrl-C stops the page. | until=until
tensorboard RUN --port 6006 | Open TensorBoard in the browser. Ctrl-C stops it. | until=until
## Stop and resume a run
train --epochs 2000 --detach | Start a run without watching it.
train | Another run is rejected, because no node is free. | status=1
down --yes | The cluster cannot be destroyed while a run is live. | status=1
stop | Stop it, with a checkpoint.
resume --detach --skip-preflight | Resume it.
stop | Stop it again.
compare FIRST RUN | Compare it with the first run. | lines=12
rm RUN --yes | Remove it from the shared file system.
clean --dry-run | List the files that no run needs.
## Scale, replace and remove
scale 3 --yes | Add a worker.
replace worker3 --yes | Replace a worker.
scale 2 --yes | Remove a worker.
notebook | The laptop here cannot reach a package index. docs/tasks.md describes a workaround. | status=1
release | This cluster has no budget. | status=1
sweep --recipe digits --grid learning-rate=0.1 --grid learning-rate=0.2 | A parameter that is given twice. | status=1
sttaus | A mistyped task. | status=1
ssh worker9 | An unknown node. | status=1
down --yes | Destroy the cluster. | lines=8
"""
"""Each line is a chapter's heading or a step: the words, the reason, and the non-default fields of Step."""


def parse_step(line: str) -> Step:
    """Parse a line of TOUR that is a step, not a heading."""
    words, why, *options = line.split(" | ")
    fields = dict(each.split("=") for each in " ".join(options).split())
    status, lines = (int(fields.get(name, 0)) for name in ("status", "lines"))
    return Step(words=tuple(words.split()), why=why, status=status, lines=lines, until=fields.get("until", ""))


UNCONFIGURED: Final = ("init", "recipes")
"""Tasks that need neither the cluster nor its configuration."""


class TourError(RuntimeError):
    """A step exited with an unexpected status."""


def resolve_names(words: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Return a step's words with names such as RUN replaced by their values in `names`."""
    return [names.get(word, word) for word in words]


def with_settings(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Return the words with the settings added before `--`, if the task needs a cluster.

    The tour's text omits these settings. It describes them as keys of cdk.json.
    """
    if words[0] in UNCONFIGURED:
        return list(words)
    at = list(words).index("--") if "--" in words else len(words)
    return [*words[:at], *settings, *words[at:]]


def shortened(text: str, lines: int) -> str:
    """Return a text without blank lines. With `lines`, omitted lines in the middle are replaced by [...].

    `lines` is the number of lines to show at the start and at the end, 0 for all.
    """
    found = [line.rstrip() for line in text.splitlines() if line.strip()]
    if lines and len(found) > 2 * lines:
        found = [*found[:lines], "[...]", *found[-lines:]]
    return "\n".join(found)


def without_places(text: str, places: Sequence[tuple[str, str]]) -> str:
    """Return a text with examples instead of paths of this machine and of the package index in an error message.

    `places` are pairs of a path and its example. Terminal colors are removed.
    """
    for place, name in sorted(places, key=lambda pair: -len(pair[0])):
        text = text.replace(place, name)
    text = re.sub(r"(cannot use a package index: )\S+", r"\1index.example", text)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def render(step: Step, command: Sequence[str], output: str, seconds: float) -> str:
    """Format one step for the document. A word with ~ is not quoted, because a shell does not expand ~ in quotes."""
    shown = " ".join(word if word.startswith("~/") else shlex.quote(word) for word in ["fab", *command])
    return f"{step.why} ({seconds:.1f} s)\n\n```\n$ {shown}\n{shortened(output, step.lines)}\n```\n"


def run_step(step: Step, command: Sequence[str]) -> tuple[str, float]:
    """Run one step; return its output and seconds. Raises TourError if its exit status is unexpected.

    After TIMEOUT_S the command is killed. Ctrl-C is sent after a line with the text `until`.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=demo.ROOT, env={**demo.environment(), "NO_COLOR": "1"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    if process.stdout is None:
        raise TourError(f"the output of `fab {shlex.join(step.words)}` is not connected")
    lines, watchdog = [], threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            lines.append(line)
            if step.until and step.until in line:
                process.send_signal(signal.SIGINT)
        status = process.wait()
    finally:
        watchdog.cancel()
    if status != step.status:
        what = f"`fab {shlex.join(step.words)}` exited with {status}, expected {step.status}"
        raise TourError(f"{what}\n{''.join(lines)}")
    return "".join(lines), time.monotonic() - began


def newest_run(laptop: Callable[..., list[str]]) -> str:
    """Return the id of the newest run. `laptop` returns the command that runs a command on the tour's laptop."""
    command = laptop("fab", "runs", "--json", *demo.settings(2))
    done = subprocess.run(command, cwd=demo.ROOT, env=demo.environment(), capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)[-1]["run_id"])


def make_shards(directory: Path) -> None:
    """Create the directory, and write the data set that the tour stages: four files of random bytes, always the
    same.
    """
    directory.mkdir()
    draw = random.Random(7)  # noqa: S311  # the same data each time
    for number in range(SHARDS):
        name = f"train-{number:05d}-of-{SHARDS:05d}"
        (directory / name).write_bytes(draw.randbytes(SHARD_BYTES))


def record(cloud: str, cores: int, load: float) -> str:
    """Run all steps on the running cloud `cloud`; return the document.

    `cores` and `load`: the machine's cores, and its load average before the cloud was started.
    """

    def laptop(*command: str) -> list[str]:
        return demo.localcloud("run", "--name", cloud, "--", *command)

    done = subprocess.run(laptop("sh", "-c", "echo ~"), cwd=demo.ROOT, capture_output=True, text=True, check=True)
    home = Path(done.stdout.strip())
    data = home / "shards"
    make_shards(data)
    places = [
        (str(home), "~"),
        (str(demo.ROOT), "~/deepcdk"),
        (str(Path(sys.prefix)), "~/deepcdk/.venv"),
        (str(default_cache({"HOME": str(Path.home())})), "~/.cache"),
    ]
    settings, run_id, first = demo.settings(2), "", ""
    parts = [HEAD.format(cores=cores, load=load, cidr=demo.LAPTOP_CIDR)]
    for line in TOUR.splitlines():
        if line.startswith("## "):
            parts.append(f"{line}\n")
            continue
        step = parse_step(line)
        names = {"RUN": run_id, "FIRST": first, "DATA": str(data), "PROJECT": str(home / "my-project")}
        words = resolve_names(step.words, names)
        print(f"fab {shlex.join(words)}", file=sys.stderr, flush=True)
        given = list(words) if step.words[0] == "sttaus" else with_settings(words, settings)
        output, seconds = run_step(step, laptop("fab", *given))
        shown = [without_places(word, places) for word in words]
        parts.append(render(step, shown, without_places(output, places), seconds))
        if step.words[0] == "train" and not step.status and "--dry-run" not in step.words:
            run_id = newest_run(laptop)
            first = first or run_id
    return "\n".join(parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Record the tour on a new embedded cloud, and write it to docs/tour.md; return 1 if a step fails, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--into", type=Path, default=demo.ROOT / "docs" / "tour.md", help="file to write")
    parser.add_argument("--cloud", default=CLOUD, help="name for its embedded cloud")
    options = parser.parse_args(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell starts its background jobs with SIGINT ignored.
    name, (load, *_) = ["--name", options.cloud], os.getloadavg()
    try:
        for command in (
            demo.localcloud("start", *name, *demo.owned(), *demo.runtime_mount()),
            demo.localcloud("run", *name, "--", "sh", "-c", demo.shell(demo.SSH_KEYGEN)),
        ):
            subprocess.run(command, cwd=demo.ROOT, env=demo.environment(), check=True)
        options.into.write_text(record(options.cloud, len(os.sched_getaffinity(0)), load), encoding="utf-8")
    except (TourError, subprocess.CalledProcessError) as error:
        print(f"the tour stopped: {error}", file=sys.stderr)
        return 1
    finally:
        subprocess.run(demo.localcloud("stop", *name), cwd=demo.ROOT, check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
