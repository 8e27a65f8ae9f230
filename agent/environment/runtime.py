"""Make the environment of ranks: TensorFlow, Horovod and our custom op, or the packages of a program's own lock file.

    python -m agent.environment.runtime ensure [--root /opt/deepcdk/runtime] [--wheelhouse DIR]
    python -m agent.environment.runtime ensure --operations gpu --cc 80,90    # for GPUs of these compute capabilities

The last line of the output is the path of the environment's Python. The runtime's packages come from a lock file beside
this module: one for CPUs, one for GPUs, one for aarch64.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from agent.environment import custom_op, package_fixes
from agent.environment.horovod_build import add_settings, default_cache, settings_from
from agent.environment.horovod_build_settings import Settings, known_inputs
from agent.environment.install_step import RuntimeSetupError
from agent.environment.requirements_lock import local_file, requirement_lines
from agent.environment.toolchain import NotCoveredError, check_platform
from agent.environment.virtual_environment import DEFAULT_ROOT, LOCK, VirtualEnvironment, print_made
from agent.hardware.machine import Platform, this_platform
from agent.spec.frameworks import HOROVOD_FILE, TENSORFLOW
from agent.spec.node_kinds import RuntimeKind

LOCKS: Final = {
    ("x86_64", "cpu"): "requirements.txt",
    ("x86_64", "gpu"): "requirements-gpu.txt",
    ("aarch64", "cpu"): "requirements-aarch64.txt",
}
"""Lock files by processor and Horovod's operations. TensorFlow has no GPU build for aarch64."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HorovodEnvironment(VirtualEnvironment):
    """The environment of a program with its own lock file. Horovod is built against the environment's packages."""

    name: ClassVar[str] = "the program's own environment"
    settings: Settings | None
    """Settings of Horovod's build; None: without Horovod."""
    cache: Path = dataclasses.field(compare=False)
    """Folder on this node where Horovod's wheels are cached."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: packages, platform and what Horovod is built for, but not the compiler.

        So a node without a compiler can use an environment that another node has made.
        """
        if self.settings is None:
            return super().inputs
        linked = {"linked": " ".join(package_fixes.OPENED)} if self.settings.gpu else {}
        return {**super().inputs, **known_inputs(self.settings, this_platform()), "alone": package_fixes.LINE, **linked}

    @property
    def check_program(self) -> str:
        """Return code for `python -c` that fails unless Horovod can be imported and, for GPUs, was built with NCCL.

        Return "" for an environment without Horovod.
        """
        if self.settings is None:
            return ""
        # `import horovod.torch` succeeds without its library.
        lines = [f"import horovod.{framework}.mpi_ops as hvd" for framework in self.settings.frameworks]
        lines += ["assert hvd.nccl_built(), 'Horovod has no NCCL'"] if self.settings.gpu else []
        return "; ".join(lines)

    def build(self, wheels: Path) -> None:
        """Add Horovod's wheel to `wheels`: from `cache`, from the wheelhouse in `settings`, or built in minutes.

        It fits this environment's Python. Does nothing for an environment without Horovod. Raises RuntimeSetupError.
        """
        if self.settings is None:
            return
        command = [str(self.python), "-m", "agent.environment.horovod_build", "build", "--cache", str(self.cache)]
        if (sdist := local_file(self.lock, self.program, HOROVOD_FILE)) is not None:
            command += ["--sdist", str(sdist)]
        output = self.run("Building Horovod", [*command, *self.settings.options], shows_progress=True)
        built = Path(output.splitlines()[-1])
        partial = wheels / f"{built.name}.part"
        shutil.copyfile(built, partial)
        partial.rename(wheels / built.name)

    def finish(self, wheels: Path) -> None:
        """Link NVIDIA's libraries for TensorFlow. With Horovod, also make Gloo its default, and check that it imports.

        Raises RuntimeSetupError if Horovod cannot be imported.
        """
        if linked := package_fixes.link_libraries(self.site_packages):
            self.report(f"linked libraries for TensorFlow: {', '.join(linked)}")
        if self.settings is not None:
            package_fixes.make_gloo_default(self.directory)
            self.run("Importing the built packages", [str(self.python), "-c", self.check_program])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime(HorovodEnvironment):
    """The environment for recipes and for programs without a lock file."""

    name: ClassVar[str] = "the runtime"
    command: ClassVar[str] = "agent.environment.runtime ensure"

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: packages, platform, Horovod's build and the custom op."""
        return {**super().inputs, "custom op": custom_op.identity()}

    @property
    def check_program(self) -> str:
        """Return code for `python -c` that imports what recipes need: Horovod, Keras, scikit-learn, the custom op."""
        return f"{super().check_program}; import keras, sklearn; from agent.environment.custom_op import load; load()"

    def install(self, wheels: Path) -> None:
        """Install the wheels. Raises RuntimeSetupError if the lock file lacks a wheel's hash (except Horovod's)."""
        for line in requirement_lines((wheels / LOCK).read_text(encoding="utf-8")):
            name, _, sha256 = line.partition(" --hash=sha256:")
            if not name.startswith("horovod==") and sha256 not in self.lock:
                raise RuntimeSetupError(
                    f"the SHA-256 of {name} in {wheels} is not in the lock file, so the wheel may have been "
                    f"changed. Remove {wheels}; the next attempt downloads the wheels again."
                )
        super().install(wheels)

    def build(self, wheels: Path) -> None:
        """Add Horovod's wheel to `wheels`, and build the custom op. Raises RuntimeSetupError.

        The library of the op stays beside the wheels, for nodes without a compiler.
        """
        super().build(wheels)
        self._install_custom_op(wheels)

    def finish(self, wheels: Path) -> None:
        """Install the custom op from `wheels`, then call `HorovodEnvironment.finish`. Raises RuntimeSetupError."""
        self._install_custom_op(wheels)
        super().finish(wheels)

    def _install_custom_op(self, wheels: Path) -> None:
        command = [str(self.python), "-m", "agent.environment.custom_op", "install", "--cache", str(wheels)]
        self.run("Building the custom TensorFlow op", command)


def lock_file(here: Platform, settings: Settings) -> Path:
    """Return the path of the runtime's lock file for these settings. Raises NotCoveredError if there is none."""
    name = LOCKS.get((here.machine, settings.operations))
    if name is None:
        with_gpus = " with GPUs" if settings.gpu else ""
        raise NotCoveredError(
            f"TensorFlow has no build for {here.machine}{with_gpus}", "Train on nodes with x86_64 processors."
        )
    return Path(__file__).parent / name


def runtime_for(
    settings: Settings, *, root: Path = DEFAULT_ROOT, wheelhouse: Path | None = None, cache: Path | None = None
) -> Runtime:
    """Return the `Runtime` for these settings on this machine, without making it. Its method `ensure` does that.

    The runtime's directory is below `root`. `wheelhouse` is the shared folder of wheels (None: wheels are not kept),
    and `cache` the folder of Horovod's wheels on this node, by default in this user's home. Raises NotCoveredError if
    TensorFlow or Horovod does not support this platform.
    """
    here = this_platform()
    check_platform(here)
    # All locked packages of the runtime have wheels, so a source distribution is an error.
    lock = f"--only-binary :all:\n{lock_file(here, settings).read_text(encoding='utf-8')}"
    cache = cache or default_cache(os.environ)
    return Runtime(root=root, wheelhouse=wheelhouse, lock=lock, settings=settings, cache=cache)


def settings_for(
    kind: RuntimeKind, horovod_wheelhouse: str = "", frameworks: tuple[str, ...] = (TENSORFLOW,)
) -> Settings:
    """Return the settings of Horovod's build for nodes of this kind. Raises ValueError for GPUs of unknown capability.

    `horovod_wheelhouse` is the address of a wheelhouse, or "".
    """
    return Settings(
        operations=kind.operations,
        compute_capabilities=kind.capabilities,
        frameworks=frameworks,
        wheelhouse=horovod_wheelhouse,
    )


def ensure(settings: Settings, wheelhouse: Path) -> Path:
    """Return the path of the runtime's Python on this node; make the runtime unless it is complete.

    Making it takes minutes: packages are downloaded, and Horovod is built unless a wheel of it is found. If another
    process is making it, this waits. `wheelhouse` is the shared folder of wheels. Raises RuntimeSetupError, ValueError
    or OSError.
    """
    return runtime_for(settings, wheelhouse=wheelhouse).ensure()


def ensure_own(
    lock: Path, *, program: Path, wheelhouse: Path, root: Path, settings: Settings | None, log: Path | None = None
) -> Path:
    """Return the path of the Python in a program's own environment on this node; make the environment if necessary.

    `lock` is the pushed lock file, `program` the base of its relative paths, and `settings` are those of Horovod's
    build (None: without Horovod). The environment is below `root`. `wheelhouse` is the shared folder of wheels. `log`
    receives the output of a step that fails. Waits and raises errors like `ensure`.
    """
    check_platform(this_platform())
    own = HorovodEnvironment(
        root=root,
        wheelhouse=wheelhouse,
        lock=lock.read_text(encoding="utf-8"),
        program=program,
        settings=settings,
        cache=default_cache(os.environ),
        log=log,
    )
    return own.ensure()


def main(argv: Sequence[str]) -> int:
    """Make the runtime with the options in `argv`, and print the path of its Python, or the error.

    Return the exit status, 0 or 1.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agent.environment.runtime", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("command", choices=("ensure",), help="make the environment unless it is complete")
    parser.add_argument(
        "--root",
        type=Path,
        default=DEFAULT_ROOT,
        metavar="DIR",
        help=f"folder of the environments; default: {DEFAULT_ROOT}",
    )
    parser.add_argument("--wheelhouse", type=Path, metavar="DIR", help="shared folder of wheels, which one node fills")
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="folder of built files; default: $XDG_CACHE_HOME/deepcdk or ~/.cache/deepcdk",
    )
    add_settings(parser)
    given = parser.parse_args(argv)
    places = {"root": given.root, "wheelhouse": given.wheelhouse, "cache": given.cache}
    return print_made(lambda: runtime_for(settings_from(given), **places).ensure())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
