"""Build a node's runtime: a virtual environment with TensorFlow, Horovod and our custom op for TensorFlow.

Packages come from a lock file beside this module: one for CPUs, one for GPUs, one for aarch64.

    python -m agent.environment.runtime ensure [--root /opt/deepcdk/runtime] [--wheelhouse DIR]
    python -m agent.environment.runtime ensure --operations gpu --cc 80,90    # for GPUs of these compute capabilities
    python -m agent.environment.runtime path        # its path, whether it exists or not; nothing is built

The last line of each is the runtime's Python.

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
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment import custom_op, default_controller, gpu_libraries
from agent.environment.horovod_build import add_settings, default_cache, settings_from
from agent.environment.horovod_build_settings import INCLUDE, VERSION, XLA_BUILDER, Settings, digest, known_inputs
from agent.environment.toolchain import HorovodError, NotCoveredError, Platform, check_platform, this_platform
from agent.environment.virtual_environment import RuntimeSetupError, VirtualEnvironment
from agent.files.build_once import build_directory_once, is_complete
from agent.files.temporary_files import temporary_files_beside
from agent.spec.kinds import RuntimeKind

DEFAULT_ROOT: Final = Path("/opt/deepcdk/runtime")
LOCKS: Final = {
    ("x86_64", "cpu"): "requirements.txt",
    ("x86_64", "gpu"): "requirements-gpu.txt",
    ("aarch64", "cpu"): "requirements-aarch64.txt",
}
"""By processor, and what Horovod allreduces with. TensorFlow has no build for GPUs on aarch64."""


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
    if settings.gpu:
        own |= {"linked": " ".join(gpu_libraries.OPENED)}
    return Runtime(root=root, fingerprint=digest(inputs | own))


def lock_file(here: Platform, settings: Settings) -> Path:
    """Return the lock file of the runtime for these settings. Raises NotCoveredError where there is none."""
    name = LOCKS.get((here.machine, settings.operations))
    if name is None:
        with_gpus = " with GPUs" if settings.gpu else ""
        raise NotCoveredError(
            f"TensorFlow has no build for {here.machine}{with_gpus}", "Train on nodes with x86_64 processors."
        )
    return Path(__file__).parent / name


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
    gpu: bool  # whether Horovod is to allreduce over NCCL
    uv: str | None  # the program, where it is installed
    wheelhouse: Path | None
    cache: Path  # of what is built, where there is no wheelhouse
    environ: Mapping[str, str]
    report: Callable[[str], None]

    @property
    def _making(self) -> VirtualEnvironment:
        return VirtualEnvironment(
            directory=self.runtime.directory, uv=self.uv, environ=self.environ, report=self.report
        )

    def ensure(self) -> Path:
        """Return the runtime's Python; build the runtime first unless it is complete."""
        runtime = self.runtime
        if not runtime.complete:
            self._making.check_writable("agent.environment.runtime")
        build_directory_once(
            runtime.directory,
            self._make,
            lock=runtime.directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that makes {runtime.directory}"),
        )
        return runtime.python

    def _make(self) -> str:
        """Build the runtime in its final folder: a virtual environment contains its path and cannot be moved."""
        self.report(f"making the runtime {self.runtime.directory}")
        with temporary_files_beside(self.runtime.directory):
            self._install()
        return f"Horovod {VERSION}, {self.requirements.name}\n"

    def _install(self) -> None:
        self._making.make()
        if self.wheelhouse is None:
            self._install_requirements(None)
            self._making.install_wheel(self._horovod_wheel(self.cache))
            self._install_custom_op(self.cache)
        else:
            self._install_from_wheelhouse(self.wheelhouse / self.runtime.fingerprint)
        default_controller.write(self.runtime.directory)
        if linked := gpu_libraries.link_libraries(self._making.site_packages()):
            self.report(f"linked for TensorFlow: {', '.join(linked)}")
        self._making.run("Importing what was installed", [str(self.runtime.python), "-c", self._check], quiet=True)

    @property
    def _check(self) -> str:
        """Return a program that imports what was installed."""
        check = "import horovod.tensorflow as hvd, keras, sklearn; from agent.environment.custom_op import load; load()"
        return f"{check}; assert hvd.nccl_built(), 'Horovod has no NCCL'" if self.gpu else check

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
        self._making.install_wheel(next(wheels.glob(f"horovod-{VERSION}-*.whl")))

    def _fill_wheelhouse(self, wheels: Path) -> str:
        """Download the wheels, install them, and build Horovod and our custom op against them."""
        self.report(f"downloading wheels to {wheels}")
        self._making.run(
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
        self._making.install(self.requirements, find_links)

    def _horovod_wheel(self, cache: Path) -> Path:
        """Return Horovod's wheel from the cache, or build it with the runtime's own Python."""
        module = [str(self.runtime.python), "-m", "agent.environment.horovod_build", "build", "--cache", str(cache)]
        return Path(self._making.run("Building Horovod", [*module, *self.settings_arguments]).splitlines()[-1])

    def _install_custom_op(self, cache: Path) -> None:
        """Install our custom TensorFlow op from `cache`, or build it there first."""
        command = [str(self.runtime.python), "-m", "agent.environment.custom_op", "install", "--cache", str(cache)]
        self._making.run("Building our custom TensorFlow op", command)


def options_for(kind: RuntimeKind) -> tuple[str, ...]:
    """Return the options of `ensure` for the runtime of nodes of this kind."""
    if not kind.has_gpus:
        return ()
    return "--operations", kind.operations, "--cc", ",".join(map(str, kind.capabilities))


def settings_options(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the same settings as options of agent.environment.horovod_build."""
    options = ["--operations", arguments.operations, "--cc", arguments.cc]
    if arguments.cuda_home is not None:
        options += ["--cuda-home", str(arguments.cuda_home)]
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
    requirements = arguments.requirements or lock_file(here, settings)
    header = (INCLUDE / XLA_BUILDER).read_text()
    runtime = runtime_for(arguments.root, lock=requirements.read_text(), settings=settings, here=here, header=header)
    return RuntimeBuilder(
        runtime=runtime,
        requirements=requirements.absolute(),
        settings_arguments=settings_options(arguments),
        gpu=settings.gpu,
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
