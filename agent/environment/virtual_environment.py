"""Make virtual environments with uv, each of them once. Standard library only.

    ROOT/<fingerprint>          an environment, named by a digest of its inputs; `.complete` is written last
    WHEELHOUSE/<fingerprint>    its wheels on the shared file system, and `lock.txt` with their hashes

One node fills the wheelhouse with pip, which uses the node's configuration of package indexes. Every node installs from
the wheelhouse. A complete environment is never changed, and can be mounted read-only elsewhere. Run `bin/python -m
MODULE` in it instead of the scripts in bin/, which contain the path where they were made.

    python -m agent.environment.virtual_environment [--root /opt/deepcdk/runtime]   # makes the one with pip and uv
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from agent.environment import package_fixes, package_index, requirements_lock
from agent.environment.install_step import RuntimeSetupError, run_step
from agent.errors import describe
from agent.files.build_once import (
    COMPLETE,
    build_directory_once,
    is_complete,
    temporary_directory_of,
    temporary_files_beside,
)
from agent.files.file_lock import file_lock
from agent.hardware.machine import base_python, this_platform

DEFAULT_ROOT: Final = Path("/opt/deepcdk/runtime")
AGENT_TREE: Final = Path(__file__).parents[2]
UV_LOCK: Final = Path(__file__).parent / "requirements-uv.txt"
LOCK: Final = "lock.txt"


def digest(inputs: Mapping[str, str]) -> str:
    """Return the first 16 hex digits of the SHA-256 of `inputs`. The order of the inputs does not matter."""
    return hashlib.sha256(json.dumps(dict(inputs), sort_keys=True).encode()).hexdigest()[:16]


def used_lock(wheels: Path) -> Path:
    """Return the path of the lock that protects the folder `wheels` from `fab clean` while nodes install from it.

    All of these nodes hold the lock at the same time. The lock file is beside the folder.
    """
    return wheels.with_suffix(".used")


def print_line(line: str) -> None:
    """Print a line of progress to stderr."""
    print(line, file=sys.stderr, flush=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VirtualEnvironment:
    """A virtual environment with the packages of a lock file."""

    name: ClassVar[str]
    """Name of the environment in messages."""
    command: ClassVar[str] = ""
    """Arguments of `python -m` that make the environment; empty if no command makes it."""
    lock: str
    """Text of the lock file: every package with its version and hashes."""
    program: Path = AGENT_TREE
    """Base directory for relative paths in the lock file."""
    root: Path
    wheelhouse: Path | None = None
    """Shared folder of wheels. None: the wheels are removed after the installation."""
    report: Callable[[str], None] = dataclasses.field(default=print_line, compare=False)
    log: Path | None = dataclasses.field(default=None, compare=False)
    """File for the whole output of a step that fails."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return everything that determines the environment's content, by name: the platform and the packages."""
        return {**this_platform().inputs, "lock": "\n".join(requirements_lock.requirement_lines(self.lock))}

    def download(self, wheels: Path) -> None:
        """Download the packages of the lock file to `wheels`, and check their hashes.

        Packages without a wheel are built. Raises RuntimeSetupError, with a hint if this node's pip has no package
        index or uses a proxy.
        """
        temporary = temporary_directory_of(self.directory)
        text = requirements_lock.with_local_wheels(requirements_lock.with_absolute_paths(self.lock, self.program))
        text, credentials = requirements_lock.without_credentials(text)
        lock = temporary / LOCK
        lock.write_text(text, encoding="utf-8")
        environ = package_index.write_netrc(credentials, os.environ, temporary)
        # Without this check, pip would retry an unreachable index for most of a minute.
        trouble = (
            "" if requirements_lock.names_an_index(self.lock) else package_index.index_problem(self.installer.python)
        )
        options = ["--no-deps", "--require-hashes", "--wheel-dir", str(wheels), *(["--no-index"] if trouble else [])]
        try:
            step = f"Downloading the packages of {self.name}"
            self.pip(step, "wheel", *options, "--requirement", str(lock), cwd=self.program, environ=environ)
        except RuntimeSetupError as error:
            raise RuntimeSetupError(f"{error}\n{trouble or package_index.proxy_hint()}".rstrip()) from None

    def prepare(self) -> None:
        """Change the new, empty environment before packages are fetched and installed.

        Does nothing unless overridden.
        """

    def build(self, wheels: Path) -> None:
        """Build more wheels into the folder `wheels`, with the packages that are already installed.

        Only the process that fills the folder calls this. Does nothing unless overridden.
        """

    def finish(self, wheels: Path) -> None:
        """Change and check the environment after the installation of `wheels`. Does nothing unless overridden."""

    @property
    def fingerprint(self) -> str:
        """Return the digest of the inputs, 16 hex digits. Equal inputs give equal fingerprints."""
        return digest(self.inputs)

    @property
    def directory(self) -> Path:
        """Return the environment's folder."""
        return self.root / self.fingerprint

    @property
    def python(self) -> Path:
        """Return the path of the environment's Python."""
        return self.directory / "bin" / "python"

    @property
    def complete(self) -> bool:
        """Return whether the environment was built completely, on this node or another."""
        return is_complete(self.directory)

    @property
    def site_packages(self) -> Path:
        """Return the site-packages folder. Raises FileNotFoundError if the environment has none."""
        return package_fixes.site_packages(self.directory)

    @property
    def installer(self) -> Installer:
        """Return the environment with pip and uv that makes this one.

        It is the one in the machine's image if that is complete. Otherwise it is in the same root, and may not have
        been made yet.
        """
        beside = Installer(root=self.root, wheelhouse=self.wheelhouse, report=self.report)
        in_image = dataclasses.replace(beside, root=DEFAULT_ROOT)
        return in_image if in_image.complete else beside

    def ensure(self) -> Path:
        """Return the path of the environment's Python; make the environment first unless it is complete.

        Making it downloads packages. If another process is making it, this waits. Raises RuntimeSetupError or OSError.
        """
        directory = self.directory
        if not self.complete:
            self._check_writable()
        build_directory_once(
            directory,
            self._make,
            lock=directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that creates {directory}"),
        )
        return self.python

    def _check_writable(self) -> None:
        """Create `root` if it is missing. Raise RuntimeSetupError if this user cannot make an environment in it."""
        root = self.root
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeSetupError(
                f"cannot create {root}: {error.strerror}. Create this directory, and let user {os.geteuid()} write "
                "to it."
            ) from error
        if not os.access(root, os.W_OK):
            there = sorted(path.parent.name for path in root.glob(f"*/{COMPLETE}"))
            make = (
                f", or create the environment in this directory (there DIR) on the machine that provides it: python -m "
                f"{self.command} --root DIR, with the same version of deepcdk, options and Python"
                if self.command
                else ""
            )
            raise RuntimeSetupError(
                f"{root} does not contain {self.name}, {self.fingerprint} (it contains "
                f"{', '.join(there) or 'no environment'}), and user {os.geteuid()} cannot write to it. Let this user "
                f"write to the directory{make}"
            )

    def _make(self) -> str:
        """Make the environment directly in its final folder, because its files contain the folder's path.

        Downloads the wheels, or waits for the node that is downloading them to the wheelhouse, and installs them.
        Returns the text of the lock file, which lists the wheels and their hashes.
        """
        self.report(f"creating {self.name} in {self.directory}")
        with contextlib.ExitStack() as opened:
            temporary = opened.enter_context(temporary_files_beside(self.directory))
            self._create()
            self.prepare()
            wheels = (self.wheelhouse or temporary) / self.fingerprint
            opened.enter_context(file_lock(used_lock(wheels), shared=True))  # `fab clean` keeps the wheels meanwhile.
            filled_here = build_directory_once(
                wheels,
                lambda: self._fill(wheels),
                lock=wheels.with_suffix(".lock"),
                on_wait=lambda: self.report(f"waiting for the node that downloads packages to {wheels}"),
                keep_partial=True,  # pip checks the hashes of the wheels that are there
            )
            if not filled_here:
                self.install(wheels)
            self.finish(wheels)
            return (wheels / LOCK).read_text(encoding="utf-8")

    def _fill(self, wheels: Path) -> str:
        """Fill the folder `wheels` with wheels and a lock file, and install them.

        Returns "", the content of the file that marks the folder as complete.
        """
        wheels.mkdir(parents=True, exist_ok=True)
        self.report(f"downloading packages to {wheels}")
        self.download(wheels)
        downloaded = requirements_lock.wheel_lock(wheels)
        (wheels / LOCK).write_text(downloaded, encoding="utf-8")
        self.install(wheels)
        self.build(wheels)
        if (built := requirements_lock.wheel_lock(wheels)) != downloaded:
            (wheels / LOCK).write_text(built, encoding="utf-8")
            self.install(wheels)
        return ""

    def _create(self) -> None:
        self.installer.ensure()
        self.uv("venv", "--python", base_python(), str(self.directory))

    def install(self, wheels: Path) -> None:
        """Install all wheels of a folder, checked by hash, and no other packages. Do nothing if there are none.

        Raises RuntimeSetupError.
        """
        if not (wheels / LOCK).read_text(encoding="utf-8"):
            return
        options = ["--python", str(self.python), "--no-deps", "--require-hashes", "--no-index", "--compile-bytecode"]
        self.uv("pip", "install", *options, "--find-links", str(wheels), "--requirement", str(wheels / LOCK))

    def uv(self, *arguments: str) -> None:
        """Run uv with these arguments: offline, without configuration files, and with a temporary cache.

        Raises RuntimeSetupError if it fails.
        """
        program = self.installer.directory / "bin" / "uv"
        cache = temporary_directory_of(self.directory) / "uv"  # on the same volume, so uv can use hard links
        options = ["--no-config", "--offline", "--no-progress", "--no-python-downloads", "--cache-dir", str(cache)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("UV_")}
        self.run(f"uv {arguments[0]}", [str(program), *arguments, *options], environ=environ)

    def pip(self, step: str, *arguments: str, cwd: Path = AGENT_TREE, environ: Mapping[str, str] = os.environ) -> None:
        """Run the installer's pip on this environment, which has no pip itself. Raises RuntimeSetupError.

        `step` names the step in errors, for example "Building wheels". `environ` replaces this process's variables.
        """
        program = [str(self.installer.python), "-m", "pip", "--python", str(self.python)]
        options = ["--no-input", "--disable-pip-version-check"]
        self.run(step, [*program, arguments[0], *options, *arguments[1:]], cwd=cwd, environ=environ)

    def run(
        self,
        step: str,
        command: Sequence[str],
        *,
        cwd: Path = AGENT_TREE,
        environ: Mapping[str, str] = os.environ,
        shows_progress: bool = False,
    ) -> str:
        """Run a step's command and return its output, like `run_step`. Raises RuntimeSetupError if it fails."""
        return run_step(
            step,
            command,
            cwd=cwd,
            environ=environ,
            directory=self.directory,
            log=self.log,
            shows_progress=shows_progress,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Installer(VirtualEnvironment):
    """The environment with pip and uv, which makes the other environments."""

    name: ClassVar[str] = "the environment with pip and uv"
    command: ClassVar[str] = "agent.environment.virtual_environment"
    lock: str = dataclasses.field(default_factory=lambda: UV_LOCK.read_text(encoding="utf-8"))

    @property
    def installer(self) -> Installer:
        """Return this environment. It needs no other one, because it is made with Python's own pip."""
        return self

    def _create(self) -> None:
        self.run("Creating a virtual environment", [base_python(), "-m", "venv", str(self.directory)])

    def install(self, wheels: Path) -> None:
        """Install uv with pip from the folder `wheels`, checked by hash. Raises RuntimeSetupError."""
        options = ["--no-deps", "--require-hashes", "--no-index", "--find-links", str(wheels)]
        self.pip("Installing uv", "install", *options, "--requirement", str(wheels / LOCK))


def print_made(make: Callable[[], object]) -> int:
    """Print the result of `make`, and return 0.

    If it raises RuntimeSetupError, ValueError or OSError, print the error to stderr instead, and return 1.
    """
    try:
        print(make())
    except (RuntimeSetupError, ValueError, OSError) as error:
        print(describe(error), file=sys.stderr)
        return 1
    return 0


def main(argv: Sequence[str]) -> int:
    """Make the environment with pip and uv, and print the path of its Python, or the error.

    Return the exit status, 0 or 1.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {Installer.command}", description="Create the environment with uv."
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=DEFAULT_ROOT,
        metavar="DIR",
        help=f"folder of the environments; default: {DEFAULT_ROOT}",
    )
    return print_made(Installer(root=parser.parse_args(argv).root).ensure)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
