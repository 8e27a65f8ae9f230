"""Run deepcdk on an embedded cloud of this machine: `cdk deploy`, `fab train`, downloaded results and their report.

The demo prints one line per command: its time, the command and its result. With `--verbose`, it prints each command as
typed on a laptop, with the full output. The output of a failed command is always printed. At the end, also after an
error or Ctrl-C, the cloud is removed.

In a checkout, all commands run there. An installed wheel runs them in a new project, `deepcdk-demo` in the current
directory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cluster.cli import CODE, COMMAND, FOR_NODES, IS_INSTALLED
from cluster.errors import DeepcdkError
from cluster.terminal.output import print_line
from cluster.terminal.status_line import doing, now
from cluster.terminal.units import duration

PROJECT: Final = "deepcdk-demo"
"""Project that an installed wheel creates in the current directory."""
ROOT: Final = Path(PROJECT) if IS_INSTALLED else CODE
"""Directory of the commands, with the cdk.json in use."""
CLOUD = "demo"
LAPTOP_CIDR = "100.64.0.2/32"
"""The only address that may connect to the master: the embedded cloud's laptop."""

DEFAULT_NODES = 2
"""Number of workers in cdk.json."""
PYTHONS = {"debian-12": (3, 11), "debian-13": (3, 13)}
"""Python version of each image."""
NODE_ENVIRONMENTS: Final = Path("/opt/deepcdk/runtime")
"""Directory of the environments on a node, as in `agent.environment.virtual_environment`."""
SSH_KEYGEN = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "~/.ssh/id_ed25519")


class StepFailedError(DeepcdkError):
    """Report that a command of the demo failed. Its output has been printed."""

    def __init__(self, command: Sequence[str], exit_code: int) -> None:
        self.command, self.exit_code = list(command), exit_code
        what = f"the demo stopped: {shlex.join(command)} failed with exit status {exit_code}"
        super().__init__(what, remedy="fix the cause that its output above shows, then repeat `deepcdk demo`")


class NoCloudError(DeepcdkError):
    """Report that the embedded cloud cannot run on this machine."""


def check_machine(system: str, *, has_localcloud: bool) -> None:
    """Raise NoCloudError unless this is Linux and the package localcloud is installed. `system`: as `platform.system`
    returns it.

    `localcloud prepare` checks the rest: root, programs, the kernel.
    """
    if system != "Linux":
        name = {"Darwin": "macOS"}.get(system, system)
        raise NoCloudError(
            f"the demo needs Linux with root, because it runs an embedded cloud on the machine; this is {name}",
            remedy="run it in a Linux virtual machine, WSL2 or a privileged container: in it, "
            "`apt-get install curl g++ iproute2 make nftables openssh-server procps`, and install deepcdk[localcloud]. "
            "Or deploy to AWS with `deepcdk up`",
        )
    if not has_localcloud:
        raise NoCloudError(
            "the demo needs the package deepcdk-localcloud, the embedded cloud",
            remedy='install deepcdk with its extra: `pip install "deepcdk[localcloud]"`, or in a checkout `make setup`',
        )


def create_environments() -> list[Path]:
    """Return the directories of the nodes' environments on this machine. Missing ones are created first, which takes
    minutes.

    Raises StepFailedError if one cannot be created, for example without a compiler. The output is printed then.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deepcdk"
    root = ["--root", str(cache / "runtime")]
    made = []
    for words in (
        ["virtual_environment", *root],
        ["master_environment", "ensure", *root],
        ["runtime", "ensure", *root, "--cache", str(cache)],
    ):
        command = [sys.executable, "-m", f"agent.environment.{words[0]}", *words[1:]]
        done = subprocess.run(
            command,
            cwd=FOR_NODES,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            print(done.stdout + done.stderr, end="", flush=True)
            raise StepFailedError(["python", *command[1:]], done.returncode)
        made.append(Path(done.stdout.splitlines()[-1]).parents[1])
    return made


def runtime_mount() -> list[str]:
    """Return the options of `localcloud start` that mount this machine's environments at the nodes' paths.

    Creates missing environments, which takes minutes. Raises StepFailedError.
    """
    return [part for each in create_environments() for part in ("--mount", f"{each}:{NODE_ENVIRONMENTS / each.name}")]


def owned() -> list[str]:
    """Return the options of `localcloud start` that stop the embedded cloud when this process exits or is killed."""
    return ["--owner", str(os.getpid())]


def environment() -> dict[str, str]:
    """Return this process's environment variables, with the directories of fab, cdk and node first in PATH."""
    commands = [str(Path(sys.executable).parent), str(ROOT / "node_modules" / ".bin")]
    return {**os.environ, "PATH": os.pathsep.join([*commands, os.environ.get("PATH", os.defpath)])}


def localcloud(*arguments: str) -> list[str]:
    """Return the command line of `localcloud` with these arguments."""
    return [sys.executable, "-m", "localcloud", *arguments]


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the embedded cloud's laptop."""
    return localcloud("run", "--name", CLOUD, "--", *command)


def shell(command: Sequence[str]) -> str:
    """Return a shell line that runs the command, after creating the parent directory of the path in its last word.

    The path starts with ~, which the shell expands. Only the user can read what is created.
    """
    path = command[-1]
    return f"umask 077; mkdir -p {Path(path).parent} && exec {shlex.join(command[:-1])} {path}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the demo."""

    title: str
    shown: Sequence[str]
    """The command as a user would type it."""
    command: Sequence[str]
    cwd: Path = ROOT
    result: str = ""
    """Regular expression for the part of the output that is the result. If nothing matches, it is the first line."""

    def run_verbosely(self) -> None:
        """Print the command, run it with its output shown, and print its time. Raises StepFailedError."""
        title = f"\033[1m{self.title}\033[0m" if sys.stdout.isatty() else self.title
        print(f"\n{title}\n$ {shlex.join(self.shown)}", flush=True)
        began = time.monotonic()
        exit_code = subprocess.run(self.command, cwd=self.cwd, env=environment(), check=False).returncode
        if exit_code:
            raise StepFailedError(self.shown, exit_code)
        print(f"({time.monotonic() - began:.1f} s)", flush=True)

    def run(self) -> None:
        """Run the command without input, and print its time, the command and its result in one line when it is done.

        Until then a terminal shows the command and the last line of its output. Ctrl-C kills the command. Raises
        StepFailedError, after printing the whole output.
        """
        began, lines, brief = time.monotonic(), list[str](), brief_command(self.shown)
        with (
            doing(brief, plain=False),
            subprocess.Popen(
                self.command, cwd=self.cwd, env=environment(), text=True, errors="replace", stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            ) as process,
        ):  # fmt: skip
            try:
                for line in process.stdout or ():
                    lines.append(line.rstrip())
                    now(f"{brief}: {lines[-1]}" if lines[-1] else brief)
            except KeyboardInterrupt:
                process.kill()
                raise
        if process.returncode:
            print("\n".join([f"$ {shlex.join(self.shown)}", *lines]), flush=True)
            raise StepFailedError(self.shown, process.returncode)
        print_line(f"{duration(time.monotonic() - began):>6}  {brief}: {self.result_in(lines)}")

    def result_in(self, lines: Sequence[str]) -> str:
        """Return the part of the output `lines` that `result` matches, or else their first; "done" without output."""
        found = re.search(self.result, "\n".join(lines), re.MULTILINE) if self.result else None
        return found[0] if found else next(iter(lines), "done")


def brief_command(shown: Sequence[str]) -> str:
    """Return a command, with `...` for everything from its first flag other than --nodes, --recipe and -m."""
    words, left_out = list[str](), False
    for word in shown:
        if word.startswith("-") and word not in ("--nodes", "--recipe", "-m"):
            left_out = True
        if not left_out:
            words.append(word)
    return " ".join([*words, "..."] if left_out else words)


def commands(nodes: int, image: str = "") -> list[tuple[str, list[str], str]]:
    """Return the demo's `fab` commands, from deploying the cluster to a report of the results, without `fab down`.

    Each is a tuple of its title, its words, and the regular expression of `Step.result`. `image` is a Debian release
    such as debian-12, or "".
    """
    return [
        ("Deploy the cluster", [COMMAND, "up", "--yes", *settings(nodes, image)], r"^stack \S+: deployed.*"),
        ("Look at it", [COMMAND, "status"], r"^workers: .*"),
        ("Train", [COMMAND, "train", "--nodes", str(nodes), "--recipe", "digits", "--yes"], r"^run .* succeeded .*%"),
        ("Fetch the results", [COMMAND, "fetch"], r"^\d+ files, .*"),
        ("See them on one page", [COMMAND, "report"], r"(?<=: )runs/.*"),
    ]


def settings(nodes: int, image: str = "") -> list[str]:
    """Return the flags `--set KEY=VALUE` of `fab up` for the demo's cluster, with `nodes` workers.

    A user would instead change these keys in cdk.json. `image` is a Debian release such as debian-12, or "".
    """
    values = {"ssh_cidr": LAPTOP_CIDR, "retain_data": "false"}
    if nodes != DEFAULT_NODES:
        values |= {"workers": str(nodes), "max_workers": str(max(nodes, 16))}
    if image:
        parameter = f"/aws/service/debian/release/{image.removeprefix('debian-')}/latest/amd64"
        values |= {"master_image_parameter": parameter, "worker_image_parameter": parameter}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def start_options(image: str, *, packages: bool) -> list[str]:
    """Return the options of `localcloud start`, after creating the environments that the nodes use from this machine.

    Creating them takes minutes. Raises StepFailedError if that fails. `image` is a Debian release, or "" for nodes with
    this machine's files. `packages` lets the nodes use this machine's package index. Nodes with this
    machine's version of Python use its environments. Other nodes create their own from the package index.
    """
    makes_own = image in PYTHONS and PYTHONS[image] != sys.version_info[:2]
    return [
        *(["--image", image] if image else []),
        *(["--packages"] if packages or makes_own else []),
        *([] if makes_own else runtime_mount()),
    ]


def run_demo(nodes: int, image: str, *, packages: bool, keep: bool, verbose: bool) -> None:
    """Run the demo on `nodes` workers and print its steps; with `verbose`, their whole output. Raises StepFailedError.

    The cloud is removed at the end, also after an error, unless `keep` is set. An installed wheel first writes the
    project PROJECT to the current directory, where it stays. `image` is a Debian release for the nodes, or "".
    `packages` lets the nodes use this machine's package index.
    """
    began = time.monotonic()
    run = Step.run_verbosely if verbose else Step.run
    if IS_INSTALLED:
        init = [sys.executable, "-P", "-m", "deepcdk", "init", PROJECT]
        run(Step(title="Write a project", shown=[COMMAND, "init", PROJECT], command=init, cwd=ROOT.parent))
        prepare = localcloud("prepare", "--name", CLOUD)
        run(Step(title="Check the machine", shown=["python", *prepare[1:]], command=prepare))
    with doing("preparing the nodes' environments with TensorFlow and Horovod; the first time takes minutes"):
        options = start_options(image, packages=packages)
    start = localcloud("start", "--name", CLOUD, *([] if keep else owned()), *options)
    with contextlib.ExitStack() as cleanup:
        run(Step(title="Start the embedded cloud", shown=["python", *start[1:]], command=start))
        if not keep:
            cleanup.callback(subprocess.run, localcloud("stop", "--name", CLOUD), cwd=ROOT, check=False)
        own = "Create an SSH key on the laptop"
        run(Step(title=own, shown=SSH_KEYGEN, command=laptop("sh", "-c", shell(SSH_KEYGEN))))
        for title, command, result in commands(nodes, image):
            run(Step(title=title, shown=command, command=laptop(*command), result=result))
        if not keep:
            down = [COMMAND, "down", "--yes", "--set", "retain_data=false"]
            run(Step(title="Destroy the cluster", shown=down, command=laptop(*down), result=r"^deleted: .*"))
    print_line("")
    print_line(
        f"From nothing to results in {time.monotonic() - began:.0f} s.{'' if keep else ' Nothing is left running.'}"
    )
    if keep:
        shell_of_laptop = localcloud("shell", "--name", CLOUD)
        print_line(f"The cloud is running. To continue in a shell:\n  {shlex.join(shell_of_laptop)}")
        print_line(f"To remove it:\n  {shlex.join(localcloud('stop', '--name', CLOUD))}")
