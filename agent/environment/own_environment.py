"""Build the environment of a program that has one of its own, in place of the runtime: its packages, and Horovod.

What is in it was resolved on the laptop, to the last package, and came with the program (`agent.spec.frameworks`,
LOCK_FILE). One node downloads the wheels to the shared file system, builds those that have none, and builds Horovod
for the frameworks that are there; the others install from there. An environment is a directory ROOT/FINGERPRINT beside
the runtimes: the same packages on the same Python are made once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.environment import default_controller, gpu_libraries, package_index
from agent.environment.horovod_build import default_cache, parse_settings
from agent.environment.horovod_build_settings import INCLUDE, VERSION, XLA_BUILDER, Settings, digest, known_inputs
from agent.environment.index_credentials import netrc_environment, without_credentials
from agent.environment.overlay import names_index
from agent.environment.toolchain import Platform, check_platform, this_platform
from agent.environment.virtual_environment import RuntimeSetupError, VirtualEnvironment
from agent.files.build_once import build_directory_once
from agent.files.temporary_files import temporary_directory_of, temporary_files_beside

PINS: Final = "pins.txt"
IMPORTS: Final = {"tensorflow": "import horovod.tensorflow", "torch": "import horovod.torch"}
"""What must load once Horovod is built for a framework."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnEnvironment:
    """The environment of a program, by its inputs."""

    root: Path
    lock: str
    """The text of the lock file, as uv writes it."""
    program: Path
    """The program's directory, in which relative paths of the lock file are looked for."""
    settings: Settings | None
    """What Horovod is built for; None: the environment has no Horovod."""
    here: Platform
    wheelhouse: Path

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that are the same for the same packages on the same platform."""
        inputs = {"for": "program", "lock": "\n".join(locked_lines(self.lock))}
        if self.settings is not None:
            header = (INCLUDE / XLA_BUILDER).read_text()
            inputs |= {"alone": default_controller.LINE, **known_inputs(self.settings, self.here, header)}
            if self.settings.gpu:
                inputs |= {"linked": " ".join(gpu_libraries.OPENED)}
        else:
            inputs |= {"machine": self.here.machine, "libc": self.here.libc, "python": self.here.python_tag}
        return digest(inputs)

    @property
    def directory(self) -> Path:
        return self.root / self.fingerprint

    @property
    def wheels(self) -> Path:
        """Return the folder on the shared file system from which all nodes install."""
        return self.wheelhouse / f"own-{self.fingerprint}"


def locked_lines(lock: str) -> list[str]:
    """Return the lines of a lock file, without comments and blank lines."""
    return [line.rstrip() for line in lock.splitlines() if line.strip() and not line.lstrip().startswith("#")]


def unconfigured(environ: Mapping[str, str]) -> dict[str, str]:
    """Return `environ` for a pip without a configuration, in which a machine may name more directories of wheels."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PIP_")}
    return {**kept, "PIP_CONFIG_FILE": os.devnull}


def placed(lock: str, program: Path) -> str:
    """Return a lock file whose --find-links name absolute paths: pip looks for others beside the file that it reads."""

    def absolute(option: re.Match[str]) -> str:
        given = " ".join(shlex.split(option[2], comments=True))
        return option[0] if "://" in given else option[1] + shlex.quote(str(program / given))

    return re.sub(r"(?m)^((?:-f|--find-links)\s*=?\s*)(\S.*)$", absolute, lock)


def pins(lock: str) -> list[str]:
    """Return the packages of a lock file as NAME==VERSION, without hashes, markers and options."""
    return [found[0] for line in locked_lines(lock) if (found := re.match(r"[A-Za-z0-9][\w.-]*==[^\s;\\]+", line))]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OwnEnvironmentBuilder:
    """Build the environment on this node."""

    environment: OwnEnvironment
    build_options: tuple[str, ...]
    """Horovod's settings as options of `agent.environment.horovod_build`."""
    cache: Path
    """Of Horovod's wheels on this node."""
    environ: Mapping[str, str]
    report: Callable[[str], None]

    @property
    def _making(self) -> VirtualEnvironment:
        return VirtualEnvironment(
            directory=self.environment.directory, uv=None, environ=self.environ, report=self.report
        )

    def ensure(self) -> Path:
        """Return the environment's Python; build the environment first unless it is complete.

        Raises RuntimeSetupError or OSError.
        """
        directory = self.environment.directory
        build_directory_once(
            directory,
            self._make,
            lock=directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that makes {directory}"),
        )
        return self._making.python

    def _make(self) -> str:
        """Make it in its final folder: a virtual environment contains its path and cannot be moved."""
        environment = self.environment
        self.report(f"making the program's own environment {environment.directory}")
        with temporary_files_beside(environment.directory):
            self._making.make()
            wheels = environment.wheels
            filled_here = build_directory_once(
                wheels,
                self._fill,
                lock=wheels.with_suffix(".lock"),
                on_wait=lambda: self.report(f"waiting for the node that fills {wheels}"),
                keep_partial=True,  # pip keeps the wheels that an interrupted download left
            )
            if not filled_here:
                self._install_packages()
            self._install_horovod()
        return "\n".join(pins(environment.lock)) + "\n"

    def _fill(self) -> str:
        """Bring every package of the lock to the wheelhouse, install them, and build Horovod against them."""
        environment = self.environment
        wheels = environment.wheels
        wheels.mkdir(parents=True, exist_ok=True)
        (wheels / PINS).write_text("".join(f"{pin}\n" for pin in pins(environment.lock)), encoding="utf-8")
        self.report(f"bringing {len(pins(environment.lock))} packages to {wheels}")
        self._bring()
        self._install_packages()
        if environment.settings is not None:
            built = self._build_horovod()
            shutil.copyfile(built, wheels / built.name)
        return ""

    def _bring(self) -> None:
        """Bring the wheels of all packages to the wheelhouse, and build those that have none."""
        environment, making = self.environment, self._making
        text, credentials = without_credentials(placed(environment.lock, environment.program))
        lock = environment.wheels / "lock.txt"
        lock.write_text(text, encoding="utf-8")
        temporary = temporary_directory_of(environment.directory)
        making = dataclasses.replace(making, environ=netrc_environment(credentials, self.environ, temporary))
        # Where pip's own configuration names an index that is out of reach, pip would try for most of a minute.
        lacking = "" if names_index(environment.lock) else package_index.missing(making.python)
        options = ["--no-input", "--no-deps", "--require-hashes", "--wheel-dir", str(environment.wheels)]
        options += ["--no-index"] if lacking else []
        bring = [str(making.python), "-m", "pip", "wheel", *options, "--requirement", str(lock)]
        try:
            making.run("Bringing the packages of the program's environment", bring, cwd=environment.program)
        except RuntimeSetupError as error:
            if not lacking:
                raise
            raise RuntimeSetupError(f"{error}\n{lacking}") from None

    def _install_packages(self) -> None:
        # What was built here has another hash than its source, which was checked when it came.
        wheels = self.environment.wheels
        options = ["--no-input", "--no-deps", "--no-index", "--find-links", str(wheels)]
        making = dataclasses.replace(self._making, environ=unconfigured(self.environ))
        install = [str(making.python), "-m", "pip", "install", *options, "--requirement", str(wheels / PINS)]
        making.run("Installing the packages of the program's environment", install)
        gpu_libraries.link_libraries(making.site_packages())

    def _build_horovod(self) -> Path:
        python = str(self._making.python)
        module = [python, "-m", "agent.environment.horovod_build", "build", "--cache", str(self.cache)]
        return Path(self._making.run("Building Horovod", [*module, *self.build_options]).splitlines()[-1])

    def _install_horovod(self) -> None:
        settings = self.environment.settings
        if settings is None:
            return
        self._making.install_wheel(next(self.environment.wheels.glob(f"horovod-{VERSION}-*.whl")))
        default_controller.write(self.environment.directory)
        check = "; ".join(IMPORTS[name] for name in settings.frameworks)
        self._making.run("Importing Horovod", [str(self._making.python), "-c", check], quiet=True)


def ensure(
    lock: Path, *, program: Path, wheelhouse: Path, root: Path, frameworks: Sequence[str], options: Sequence[str]
) -> Path:
    """Return the Python of a program's own environment on this node, built first unless it is there.

    `lock` is the pushed lock file; `options` are those of Horovod's build for the node's kind. Raises HorovodError,
    RuntimeSetupError, ValueError or OSError.
    """
    here = this_platform()
    check_platform(here)
    build_options = (*options, "--frameworks", ",".join(frameworks)) if frameworks else ()
    environment = OwnEnvironment(
        root=root,
        lock=lock.read_text(encoding="utf-8"),
        program=program,
        settings=parse_settings(build_options) if frameworks else None,
        here=here,
        wheelhouse=wheelhouse,
    )
    builder = OwnEnvironmentBuilder(
        environment=environment,
        build_options=build_options,
        cache=default_cache(os.environ),
        environ=os.environ,
        report=lambda line: print(line, file=sys.stderr, flush=True),
    )
    return builder.ensure()
