"""Build a node's runtime: a virtual environment with TensorFlow, Horovod and our custom op for TensorFlow.

Packages come from the lock file beside this module.

    python -m agent.environment.runtime ensure [--root /opt/deepcdk/runtime] [--wheelhouse DIR]
    python -m agent.environment.runtime path        # its path, whether it exists or not; nothing is built

The last line of both is the runtime's Python.

A runtime is a directory ROOT/<fingerprint>: another lock file or Python makes another one, and a running job keeps its
own. It is complete when it has the file `.complete`, which is written last. A complete one is never changed, and may be
mounted read-only elsewhere: run `bin/python -m MODULE` in it, never the scripts in bin/, which contain the path where
they were made. With a wheelhouse on a shared file system, one node downloads and builds, the others install from there.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment import custom_op, default_controller
from agent.environment.horovod_build import add_settings, default_cache, settings_from
from agent.environment.horovod_build_settings import INCLUDE, VERSION, XLA_BUILDER, Settings, digest, known_inputs
from agent.environment.toolchain import HorovodError, Platform, check_platform, this_platform
from agent.files.build_once import COMPLETE, build_directory_once, is_complete
from agent.files.temporary_files import temporary_directory_of, temporary_files_beside, with_temporary_files

DEFAULT_ROOT: Final = Path("/opt/deepcdk/runtime")
LOCKS: Final = {"cpu": "requirements.txt", "gpu": "requirements-gpu.txt"}


class RuntimeSetupError(RuntimeError):
    """Report why a node's runtime could not be built, and what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime:
    """A runtime, by the fingerprint of its inputs."""

    root: Path
    fingerprint: str

    @property
    def directory(self) -> Path:
        """Return its folder."""
        return self.root / self.fingerprint

    @property
    def python(self) -> Path:
        """Return the Python to run with."""
        return self.directory / "bin" / "python"

    @property
    def complete(self) -> bool:
        """Return whether it has been built to the end."""
        return is_complete(self.directory)


def runtime_for(root: Path, *, lock: str, settings: Settings, here: Platform, header: str) -> Runtime:
    """Return the runtime under `root` for the text of a lock file, without its comments, on the platform `here`.

    The compiler does not count, so that a node without one may use a runtime that another node has built.
    """
    inputs = known_inputs(settings, here, header)
    pins = "\n".join(line for line in lock.splitlines() if not line.lstrip().startswith("#"))
    own = {"lock": pins, "alone": default_controller.LINE, "custom op": custom_op.identity()}
    return Runtime(root=root, fingerprint=digest(inputs | own))


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


def download_command(*, python: Path, requirements: Path, destination: Path) -> list[str]:
    """Return the command that downloads the wheels of `requirements` to `destination`. uv has no such command."""
    options = ["--require-hashes", "--only-binary", ":all:", "--requirement", str(requirements)]
    return [str(python), "-m", "pip", "download", "--no-input", *options, "--dest", str(destination)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeBuilder:
    """Build a runtime on this machine."""

    runtime: Runtime
    requirements: Path  # the lock file
    settings_arguments: tuple[str, ...]  # Horovod's settings, as options of agent.environment.horovod_build
    uv: str | None  # the program, where it is installed
    wheelhouse: Path | None
    cache: Path  # of what is built, where there is no wheelhouse
    environ: Mapping[str, str]
    report: Callable[[str], None]

    def ensure(self) -> Path:
        """Return the runtime's Python; build the runtime first unless it is complete."""
        runtime = self.runtime
        if not runtime.complete:
            self._check_writable()
        build_directory_once(
            runtime.directory,
            self._make,
            lock=runtime.directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that makes {runtime.directory}"),
        )
        return runtime.python

    def _check_writable(self) -> None:
        """Raise RuntimeSetupError where no runtime can be built; its message lists those that exist."""
        root = self.runtime.root
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RuntimeSetupError(f"{root} cannot be made: {error.strerror}. Make it, or give --root.") from error
        if not os.access(root, os.W_OK):
            there = sorted(path.parent.name for path in root.glob(f"*/{COMPLETE}"))
            raise RuntimeSetupError(
                f"{root} is read-only and has no runtime {self.runtime.fingerprint} "
                f"(it has: {', '.join(there) or 'none'}). Make that one where {root} comes from: "
                f"python -m agent.environment.runtime ensure --root DIR, with the same lock file and Python "
                f"{sys.version_info[0]}.{sys.version_info[1]}."
            )

    def _make(self) -> str:
        """Build the runtime in its final folder: a virtual environment contains its path and cannot be moved."""
        self.report(f"making the runtime {self.runtime.directory}")
        with temporary_files_beside(self.runtime.directory):
            self._install()
        return f"Horovod {VERSION}, {self.requirements.name}\n"

    def _install(self) -> None:
        # The Python itself, not a link to it: a virtual environment finds the library relative to its Python.
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self._run("Making a virtual environment", [base, "-m", "venv", str(self.runtime.directory)])
        if self.wheelhouse is None:
            self._install_requirements(None)
            self._install_wheel(self._horovod_wheel(self.cache))
            self._install_custom_op(self.cache)
        else:
            self._install_from_wheelhouse(self.wheelhouse / self.runtime.fingerprint)
        default_controller.write(self.runtime.directory)
        check = "import horovod.tensorflow, keras, sklearn; from agent.environment.custom_op import load; load()"
        self._run("Importing what was installed", [str(self.runtime.python), "-c", check], quiet=True)

    def _install_from_wheelhouse(self, wheels: Path) -> None:
        """Install from the folder `wheels`; one node fills it first, installing as it goes, while the others wait."""
        was_filled_here = build_directory_once(
            wheels,
            lambda: self._fill_wheelhouse(wheels),
            lock=wheels.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for the node that fills {wheels}"),
            keep_partial=True,  # pip keeps the wheels that an interrupted download left
        )
        if not was_filled_here:
            self._install_requirements(wheels)
            self._install_custom_op(wheels)
        self._install_wheel(next(wheels.glob(f"horovod-{VERSION}-*.whl")))

    def _fill_wheelhouse(self, wheels: Path) -> str:
        """Download the wheels, install them, and build Horovod and our custom op against them."""
        self.report(f"downloading wheels to {wheels}")
        self._run(
            "Downloading wheels",
            download_command(python=self.runtime.python, requirements=self.requirements, destination=wheels),
        )
        self._install_requirements(wheels)
        built = self._horovod_wheel(self.cache)
        shutil.copyfile(built, wheels / built.name)
        self._install_custom_op(wheels)
        return ""

    def _install_requirements(self, find_links: Path | None) -> None:
        self.report("installing TensorFlow and what goes with it")
        command = install_command(
            python=self.runtime.python, requirements=self.requirements, uv=self.uv, find_links=find_links
        )
        if self.uv is not None and find_links is None:
            # uv does not read pip's configuration, in which a machine may name its only index.
            try:
                self._run("Installing with uv", command)
                return
            except RuntimeSetupError as error:
                self.report(f"{error}\ntrying pip instead")
            command = install_command(
                python=self.runtime.python, requirements=self.requirements, uv=None, find_links=None
            )
        self._run("Installing", command)

    def _install_wheel(self, wheel: Path) -> None:
        command = install_command(
            python=self.runtime.python, requirements=wheel, uv=self.uv, find_links=wheel.parent, no_deps=True
        )
        self._run("Installing Horovod", command)

    def _horovod_wheel(self, cache: Path) -> Path:
        """Return Horovod's wheel from the cache, or build it with the runtime's own Python."""
        module = [str(self.runtime.python), "-m", "agent.environment.horovod_build", "build", "--cache", str(cache)]
        return Path(self._run("Building Horovod", [*module, *self.settings_arguments]).splitlines()[-1])

    def _install_custom_op(self, cache: Path) -> None:
        """Install our custom TensorFlow op from `cache`, or build it there first."""
        command = [str(self.runtime.python), "-m", "agent.environment.custom_op", "install", "--cache", str(cache)]
        self._run("Building our custom TensorFlow op", command)

    def _run(self, step: str, command: Sequence[str], *, quiet: bool = False) -> str:
        """Run one step; return its standard output. Its error stream passes through unless `quiet`."""
        root = Path(__file__).parents[2]
        finished = subprocess.run(
            command,
            cwd=root,
            env=with_temporary_files(self.environ, temporary_directory_of(self.runtime.directory)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            check=False,
        )
        if finished.returncode != 0:
            last = "\n".join(finished.stdout.splitlines()[-5:])
            raise RuntimeSetupError(f"{step} failed with status {finished.returncode}: {' '.join(command)}\n{last}")
        return finished.stdout


def settings_options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the same settings as options of agent.environment.horovod_build."""
    options = ["--operations", arguments.operations, "--cuda-home", str(arguments.cuda_home), "--cc", arguments.cc]
    if arguments.nccl_home is not None:
        options += ["--nccl-home", str(arguments.nccl_home)]
    return tuple(options)


def ensure(*options: str) -> Path:
    """Run the command `ensure` with these options in this process; return the runtime's Python.

    Raises HorovodError, RuntimeSetupError, ValueError or OSError.
    """
    return builder(_parser().parse_args(["ensure", *options])).ensure()


def builder(arguments: argparse.Namespace) -> RuntimeBuilder:
    """Return the builder of the runtime of a command line. Raises as `ensure`."""
    here = this_platform()
    check_platform(here)
    settings = settings_from(arguments)
    requirements = arguments.requirements or Path(__file__).parent / LOCKS[settings.operations]
    header = (INCLUDE / XLA_BUILDER).read_text()
    runtime = runtime_for(arguments.root, lock=requirements.read_text(), settings=settings, here=here, header=header)
    return RuntimeBuilder(
        runtime=runtime,
        requirements=requirements.absolute(),
        settings_arguments=settings_options(arguments),
        uv=shutil.which("uv", path=os.environ.get("PATH", os.defpath)),
        wheelhouse=arguments.wheelhouse,
        cache=arguments.cache or default_cache(os.environ),
        environ=os.environ,
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.runtime", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("ensure", "path"))
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, metavar="DIR", help=f"default: {DEFAULT_ROOT}")
    parser.add_argument("--requirements", type=Path, metavar="FILE", help="default: the lock file beside this module")
    parser.add_argument("--wheelhouse", type=Path, metavar="DIR", help="a shared folder of wheels, filled by one node")
    parser.add_argument(
        "--cache", type=Path, metavar="DIR", help="default: $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk"
    )
    add_settings(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    """Run the command line; return the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        made = builder(arguments)
        print(made.runtime.python if arguments.command == "path" else made.ensure())
    except (HorovodError, RuntimeSetupError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
