"""Make a virtual environment in its final folder, and install the packages of a lock file. Standard library only."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agent.files.build_once import COMPLETE
from agent.files.temporary_files import temporary_directory_of, with_temporary_files


class RuntimeSetupError(RuntimeError):
    """Report why an environment of a node could not be built, and what to do."""


def install_command(
    *, python: Path, requirements: Path, uv: str | None, find_links: Path | None, no_deps: bool = False
) -> list[str]:
    """Return the command that installs `requirements` for `python`, compiled to byte code, by uv where there is one.

    With `find_links` nothing is downloaded: all packages come from that folder.
    """
    if uv is not None:
        command = [uv, "pip", "install", "--python", str(python), "--compile-bytecode"]
    else:
        command = [str(python), "-m", "pip", "install", "--no-input"]  # pip compiles unless told not to
    if find_links is not None:
        command += ["--no-index", "--find-links", str(find_links)]
    if no_deps:
        return [*command, "--no-deps", str(requirements)]
    return [*command, "--require-hashes", "--requirement", str(requirements)]


def base_python() -> str:
    """Return the Python of this machine behind this process: not a link to it.

    A virtual environment finds the standard library relative to its Python.
    """
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VirtualEnvironment:
    """A virtual environment of this machine's Python, while it is made."""

    directory: Path
    uv: str | None
    """The program, where it is installed."""
    environ: Mapping[str, str]
    report: Callable[[str], None]

    @property
    def python(self) -> Path:
        """Return its Python."""
        return self.directory / "bin" / "python"

    def check_writable(self, module: str) -> None:
        """Raise RuntimeSetupError where it cannot be made; `module` is the one that makes such environments.

        The message lists those that exist.
        """
        root = self.directory.parent
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeSetupError(f"{root} cannot be made: {error.strerror}. Make it, or give --root.") from error
        if not os.access(root, os.W_OK):
            there = sorted(path.parent.name for path in root.glob(f"*/{COMPLETE}"))
            raise RuntimeSetupError(
                f"{root} is read-only and has no runtime {self.directory.name} "
                f"(it has: {', '.join(there) or 'none'}). Make that one where {root} comes from: "
                f"python -m {module} ensure --root DIR, with the same lock file, the same options and Python "
                f"{sys.version_info[0]}.{sys.version_info[1]}."
            )

    def make(self) -> None:
        """Make it, empty but for pip."""
        self.run("Making a virtual environment", [base_python(), "-m", "venv", str(self.directory)])

    def install(self, requirements: Path, find_links: Path | None) -> None:
        """Install what a lock file names, by uv where it is there and succeeds, else by pip."""
        command = install_command(python=self.python, requirements=requirements, uv=self.uv, find_links=find_links)
        if self.uv is not None and find_links is None:
            # uv does not read pip's configuration, in which a machine may name its only index.
            try:
                self.run("Installing with uv", command)
                return
            except RuntimeSetupError as error:
                self.report(f"{error}\ntrying pip instead")
            command = install_command(python=self.python, requirements=requirements, uv=None, find_links=None)
        self.run("Installing", command)

    def install_wheel(self, wheel: Path) -> None:
        """Install one wheel without what it depends on."""
        command = install_command(
            python=self.python, requirements=wheel, uv=self.uv, find_links=wheel.parent, no_deps=True
        )
        self.run(f"Installing {wheel.name}", command)

    def site_packages(self) -> Path:
        """Return where its packages lie."""
        return next((self.directory / "lib").glob("python3*/site-packages"))

    def run(self, step: str, command: Sequence[str], *, quiet: bool = False, cwd: Path | None = None) -> str:
        """Run one step in the agent's tree, or in `cwd`; return its standard output.

        Its error stream passes through unless `quiet`.
        Raises RuntimeSetupError, with the last lines of the output, where the step fails.
        """
        finished = subprocess.run(
            command,
            cwd=cwd or Path(__file__).parents[2],
            env=with_temporary_files(self.environ, temporary_directory_of(self.directory)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            check=False,
        )
        if finished.returncode != 0:
            last = "\n".join(finished.stdout.splitlines()[-5:])
            raise RuntimeSetupError(f"{step} failed with status {finished.returncode}: {' '.join(command)}\n{last}")
        return finished.stdout
