"""Show a whole run on one machine: embedded cloud, `cdk deploy`, `fab train`, downloaded results and their report.

    .venv/bin/python -m tools.demo [--nodes N] [--image NAME] [--packages] [--keep] [--verbose]

The demo prints one line per command: its time, the command and its result. With `--verbose`, it prints each command as
typed on a laptop, with the full output. The output of a failed command is always printed. At the end, also after an
error or Ctrl-C, the cloud is removed. `--keep` keeps the cloud and prints how to continue.

With `--image debian-12`, all nodes run on Debian's root file system with its cloud-init and apt. mmdebstrap creates it
at the first use. With `--packages`, the hosts can reach the package index that pip is configured with here, for
programs with requirements. With `--image debian-13`, they always can, and create their own training environment,
because Debian 13 has another Python than this machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from agent.environment.horovod_build import default_cache
from agent.environment.virtual_environment import DEFAULT_ROOT
from cluster.terminal.output import print_line
from cluster.terminal.status_line import doing, now
from cluster.terminal.units import duration
from tools.setup import node_environments

ROOT = Path(__file__).resolve().parent.parent
CLOUD = "demo"
LAPTOP_CIDR = "100.64.0.2/32"
"""The only address that may connect to the master: the embedded cloud's laptop."""

DEFAULT_NODES = 2
"""Number of workers in cdk.json."""
PYTHONS = {"debian-12": (3, 11), "debian-13": (3, 13)}
"""Python version of each image."""
SSH_KEYGEN = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "~/.ssh/id_ed25519")


class StepFailedError(RuntimeError):
    """A command of the demo failed. `command` and `exit_code` describe it."""

    def __init__(self, command: Sequence[str], exit_code: int) -> None:
        self.command, self.exit_code = list(command), exit_code
        super().__init__(f"{shlex.join(command)} failed with exit status {exit_code}")


def runtime_mount() -> list[str]:
    """Return the options that mount the training environments of `make setup` at the nodes' paths."""
    cache = default_cache(os.environ)
    made = [environment.directory for environment in node_environments(cache)]
    return [part for each in made for part in ("--mount", f"{each}:{DEFAULT_ROOT / each.name}")]


def owned() -> list[str]:
    """Return the option that stops an embedded cloud when this process exits or is killed."""
    return ["--owner", str(os.getpid())]


def environment() -> dict[str, str]:
    """Return this process's environment with the project's own commands (fab, cdk, node) first in PATH."""
    commands = [str(Path(sys.executable).parent), str(ROOT / "node_modules" / ".bin")]
    return {**os.environ, "PATH": os.pathsep.join([*commands, os.environ.get("PATH", os.defpath)])}


def localcloud(*arguments: str) -> list[str]:
    """Return the embedded cloud's command line."""
    return [sys.executable, "-m", "localcloud", *arguments]


def laptop(*command: str) -> list[str]:
    """Return the command line that runs a command on the embedded cloud's laptop."""
    return localcloud("run", "--name", CLOUD, "--", *command)


def shell(command: Sequence[str]) -> str:
    """Return a shell line that runs a command whose last word starts with ~, after making its directory."""
    path = command[-1]
    return f"umask 077; mkdir -p {Path(path).parent} && exec {shlex.join(command[:-1])} {path}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the demo."""

    title: str
    shown: Sequence[str]
    """The command as a user would type it."""
    command: Sequence[str]
    result: str = ""
    """Regular expression for the part of the output that is the result. If nothing matches, it is the first line."""

    def run_verbosely(self) -> None:
        """Print the command, its output and its time. Raises StepFailedError."""
        title = f"\033[1m{self.title}\033[0m" if sys.stdout.isatty() else self.title
        print(f"\n{title}\n$ {shlex.join(self.shown)}", flush=True)
        began = time.monotonic()
        exit_code = subprocess.run(self.command, cwd=ROOT, env=environment(), check=False).returncode
        if exit_code:
            raise StepFailedError(self.shown, exit_code)
        print(f"({time.monotonic() - began:.1f} s)", flush=True)

    def run(self) -> None:
        """Print the time, the command and the result in one line. Until then a terminal shows its last line.

        Raises StepFailedError, after printing the whole output.
        """
        began, lines, brief = time.monotonic(), list[str](), brief_command(self.shown)
        with (
            doing(brief, plain=False),
            subprocess.Popen(
                self.command, cwd=ROOT, env=environment(), text=True, errors="replace", stdin=subprocess.DEVNULL,
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
        """Return the result in the lines of the output."""
        found = re.search(self.result, "\n".join(lines), re.MULTILINE) if self.result else None
        return found[0] if found else next(iter(lines), "done")


def brief_command(shown: Sequence[str]) -> str:
    """Return a command without its settings and answers, and with `...` in their place."""
    words, left_out = list[str](), False
    for word in shown:
        if word.startswith("-") and word not in ("--nodes", "--recipe", "-m"):
            left_out = True
        if not left_out:
            words.append(word)
    return " ".join([*words, "..."] if left_out else words)


def commands(nodes: int, image: str = "") -> list[tuple[str, list[str], str]]:
    """Return the commands from an empty account to results on the user's disk, each with its title and its result."""
    return [
        ("Deploy the cluster", ["fab", "up", "--yes", *settings(nodes, image)], r"^stack \S+: deployed.*"),
        ("Look at it", ["fab", "status"], r"^workers: .*"),
        ("Train", ["fab", "train", "--nodes", str(nodes), "--recipe", "digits", "--yes"], r"^run .* succeeded .*%"),
        ("Fetch the results", ["fab", "fetch"], r"^\d+ files, .*"),
        ("See them on one page", ["fab", "report"], r"(?<=: )runs/.*"),
    ]


def settings(nodes: int, image: str = "") -> list[str]:
    """Return the settings that a user would change in cdk.json. `image`: a Debian release, for example debian-12."""
    values = {"ssh_cidr": LAPTOP_CIDR, "retain_data": "false"}
    if nodes != DEFAULT_NODES:
        values |= {"workers": str(nodes), "max_workers": str(max(nodes, 16))}
    if image:
        parameter = f"/aws/service/debian/release/{image.removeprefix('debian-')}/latest/amd64"
        values |= {"master_image_parameter": parameter, "worker_image_parameter": parameter}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


def start_options(image: str, *, packages: bool) -> list[str]:
    """Return the options for starting the cloud. Nodes with the same Python use the environments of `make setup`.

    Other nodes make their own from this machine's package index.
    """
    makes_own = image in PYTHONS and PYTHONS[image] != sys.version_info[:2]
    return [
        *(["--image", image] if image else []),
        *(["--packages"] if packages or makes_own else []),
        *([] if makes_own else runtime_mount()),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=DEFAULT_NODES, help="workers to train on (each is one rank)")
    parser.add_argument("--image", default="", metavar="NAME", help="Debian's image for all nodes: debian-12 or 13")
    parser.add_argument("--packages", action="store_true", help="let the hosts use this machine's package index")
    parser.add_argument("--keep", action="store_true", help="keep the embedded cloud at the end")
    parser.add_argument("--verbose", action="store_true", help="print the full output of the commands")
    options = parser.parse_args(argv)
    if not 1 <= options.nodes <= 64:
        parser.error(f"--nodes must be 1 to 64, not {options.nodes}")
    began = time.monotonic()
    owner = [] if options.keep else owned()
    start = localcloud("start", "--name", CLOUD, *owner, *start_options(options.image, packages=options.packages))
    run = Step.run_verbosely if options.verbose else Step.run
    started = False
    try:
        run(Step(title="Start the embedded cloud", shown=["python", *start[1:]], command=start))
        started = True
        own = "Create an SSH key on the laptop"
        run(Step(title=own, shown=SSH_KEYGEN, command=laptop("sh", "-c", shell(SSH_KEYGEN))))
        for title, command, result in commands(options.nodes, options.image):
            run(Step(title=title, shown=command, command=laptop(*command), result=result))
        if not options.keep:
            down = ["fab", "down", "--yes", "--set", "retain_data=false"]
            run(Step(title="Destroy the cluster", shown=down, command=laptop(*down), result=r"^deleted: .*"))
    except StepFailedError as error:
        print(f"\nThe demo stopped: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nThe demo was interrupted.", file=sys.stderr)
        return 130
    finally:
        if started and not options.keep:
            stop = localcloud("stop", "--name", CLOUD)
            subprocess.run(stop, cwd=ROOT, check=False)
    print(f"\nFrom nothing to results in {time.monotonic() - began:.0f} s.", end=" ")
    if options.keep:
        print(f"The cloud is running. To continue:\n  {shlex.join(laptop('fab', 'status'))}")
        print(f"To remove it:\n  {shlex.join(localcloud('stop', '--name', CLOUD))}")
    else:
        print("Nothing is left running.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
