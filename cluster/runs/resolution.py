"""Which environment a program's requirements need, resolved by uv on the laptop, before anything is pushed or started.

Requirements that the nodes' runtime allows are laid over it. Others get an environment of the program's own: every
package of it is resolved here, for the nodes' processor and Python, and Horovod is built for the frameworks among them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.frameworks import (
    FIRST_TENSORFLOW,
    HOROVOD_NEEDS,
    HOROVOD_VERSION,
    KEPT,
    KEPT_PREFIX,
    LAST_TENSORFLOW,
    TENSORFLOW,
    TENSORFLOW_PACKAGES,
    TORCH,
)
from agent.spec.kinds import RuntimeKind
from cluster.errors import DeepcdkError

LIBC: Final = "manylinux_2_34"
"""Of Amazon Linux 2023; Debian 12, 13 and Ubuntu 24.04 have newer ones, which run what is built for this one."""
LOCKS: Final = {"x86_64": "requirements.txt", "aarch64": "requirements-aarch64.txt"}
GPU_LOCK: Final = "requirements-gpu.txt"
PIP_VARIABLES: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
"""Where packages come from, as pip's variables say it, and uv's of the same meaning. uv reads its own configuration."""
PATIENCE: Final = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "5"}
"""For an index that this machine does not reach: the nodes may reach one."""
UNREACHABLE: Final = re.compile(r"Failed to fetch|Request failed after")
KERAS_2: Final = "tf-keras"
TENSORFLOW_MODULES: Final = ("tensorflow", "keras", "tf_keras", "horovod.tensorflow", "horovod.keras")
TORCH_MODULE: Final = "horovod.torch"
FIRST_WITH_KERAS_3: Final = (2, 16)
_UNLOCKED: Final = re.compile(r"^(\S+ @ |-e |\.|/|file:)")
_PIN: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", re.MULTILINE)
_OPTION: Final = re.compile(r"\s*(-i|-f|--index-url|--extra-index-url|--no-index|--find-links|--trusted-host)\b.*")


class RequirementsError(DeepcdkError):
    """Report requirements that no environment can have, in uv's words."""


class UnreachableIndexError(DeepcdkError):
    """Report that this machine reaches no package index."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a program asks of its environment."""

    directory: Path
    requirements: str
    """Path of its requirements file in the directory; empty: none."""
    modules: frozenset[str]
    """What its files import, as `horovod.torch`."""
    keras: int = 3
    """The version that it is to have, as --keras says."""
    horovod: bool = True
    """Whether Horovod starts it."""

    @property
    def uses_torch(self) -> bool:
        """Return whether Horovod must be built for PyTorch."""
        return self.horovod and self._imports(TORCH_MODULE)

    @property
    def uses_tensorflow(self) -> bool:
        """Return whether it needs TensorFlow, whether its requirements name it or not."""
        return self.horovod and (not self.uses_torch or any(map(self._imports, TENSORFLOW_MODULES)))

    @property
    def text(self) -> str:
        """Return its requirements. Raises RequirementsError."""
        try:
            return (self.directory / self.requirements).read_text(encoding="utf-8") if self.requirements else ""
        except (OSError, UnicodeDecodeError) as error:
            raise RequirementsError(f"{self.requirements} cannot be read: {error}", remedy="correct it") from None

    @property
    def file(self) -> str:
        """Return what its requirements are called in a message."""
        return self.requirements or "the program, which has no requirements.txt,"

    def _imports(self, name: str) -> bool:
        return any(module == name or module.startswith(f"{name}.") for module in self.modules)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Answer:
    """What uv said."""

    fits: bool
    lock: str
    words: str

    @property
    def packages(self) -> dict[str, str]:
        return dict(_PIN.findall(self.lock))

    @property
    def tensorflow(self) -> str:
        """Return the version of TensorFlow; empty without."""
        return next((self.packages[name] for name in TENSORFLOW_PACKAGES if name in self.packages), "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Environment:
    """What the ranks of a program run in."""

    lock: str = ""
    """The text of the lock file of an environment of the program's own; empty: the runtime."""
    horovod_for: tuple[str, ...] = ()
    """The frameworks that Horovod is built for there."""
    keras: int = 3
    """The version of Keras that comes with its TensorFlow: 3, or 2."""
    tf_keras: bool = False
    """Whether it has Keras 2 beside it, for a program that is to have that."""
    why: str = ""
    """Why it is not the runtime."""

    @property
    def own(self) -> bool:
        """Return whether it is the program's own, not the runtime."""
        return bool(self.lock)

    @property
    def packages(self) -> dict[str, str]:
        """Return the versions of its packages; empty for the runtime."""
        return dict(_PIN.findall(self.lock))

    def __str__(self) -> str:
        """Return it in one line."""
        shown = [f"{name} {self.packages[name]}" for name in _TOLD if name in self.packages]
        horovod = [f"Horovod {HOROVOD_VERSION} for {' and '.join(self.horovod_for)}"] if self.horovod_for else []
        listed = ", ".join([*shown, *horovod]) or "neither TensorFlow nor PyTorch"
        return f"an environment of the program's own ({self.why}): {listed}; {len(self.packages)} packages"


_TOLD: Final = (*TENSORFLOW_PACKAGES, "keras", TORCH, "numpy")
RUNTIME: Final = Environment()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolver:
    """Resolve the requirements of programs for the hosts of a run."""

    kind: RuntimeKind
    """Of the hosts, with their Python."""
    locks: Path
    """Directory of the runtime's lock files."""
    environ: Mapping[str, str]

    def resolve(self, wanted: Wanted) -> Environment:
        """Return the environment for a program.

        Raises RequirementsError; UnreachableIndexError where this machine reaches no package index.
        """
        there = self._runtime()
        kept = {name: version for name, version in there.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
        if not wanted.uses_torch and self._fits_over(wanted, there, kept):
            return RUNTIME
        return self._own(wanted, kept)

    def _runtime(self) -> dict[str, str]:
        """Return the versions of the runtime's packages; TensorFlow has each of its names."""
        name = GPU_LOCK if self.kind.has_gpus else LOCKS[self.kind.processor]
        there = dict(_PIN.findall((self.locks / name).read_text(encoding="utf-8")))
        version = next(there[name] for name in TENSORFLOW_PACKAGES if name in there)
        return there | dict.fromkeys(TENSORFLOW_PACKAGES[:2], version)

    def _fits_over(self, wanted: Wanted, there: Mapping[str, str], kept: Mapping[str, str]) -> bool:
        """Return whether the requirements can be met by packages over the runtime, which has `there`."""
        constraints = [f"{name}=={version}" for name, version in kept.items()]
        roots = [_keras_2(there[TENSORFLOW])] if wanted.keras == 2 else []
        with tempfile.TemporaryDirectory() as directory:
            for name, version in there.items():
                write_stand_in(Path(directory), name, version)
            return self._compile(wanted, roots, constraints=constraints, find_links=directory).fits

    def _own(self, wanted: Wanted, kept: Mapping[str, str]) -> Environment:
        """Resolve an environment of the program's own, in place of the runtime, which has `kept`."""
        check_horovod(wanted)
        roots = [*(HOROVOD_NEEDS if wanted.horovod else ())]
        found = self._checked(wanted, [])
        if wanted.uses_torch and TORCH not in found.packages:
            raise RequirementsError(
                f"the program imports {TORCH_MODULE}, and its requirements bring no {TORCH}",
                remedy=f"name {TORCH} in the program's requirements.txt",
            )
        if (wanted.uses_tensorflow and not found.tensorflow) or (found.tensorflow and self.kind.has_gpus):
            roots.append(self._tensorflow_root())
        if roots:
            found = self._checked(wanted, roots)
        if wanted.horovod and found.tensorflow:
            check_tensorflow(found.tensorflow, wanted)
        keras = 3 if not found.tensorflow or _numbers(found.tensorflow) >= FIRST_WITH_KERAS_3 else 2
        tf_keras = bool(wanted.keras == 2 and keras == 3 and found.tensorflow)
        if tf_keras:
            found = self._checked(wanted, [*roots, _keras_2(found.tensorflow)])
        built_for = {TENSORFLOW: wanted.uses_tensorflow, TORCH: wanted.uses_torch}
        return Environment(
            lock="".join(f"{line}\n" for line in (*option_lines(wanted.text), *found.lock.splitlines())),
            horovod_for=tuple(name for name, is_used in built_for.items() if is_used),
            keras=keras,
            tf_keras=tf_keras,
            why=reason(found.packages, kept, wanted),
        )

    def _tensorflow_root(self) -> str:
        """Return the requirement of TensorFlow, for these hosts, in a version that Horovod was built for."""
        package = TENSORFLOW_PACKAGES[0] if self.kind.processor == "x86_64" else TENSORFLOW
        if self.kind.has_gpus:
            package = f"{TENSORFLOW}[and-cuda]"
        first, last = FIRST_TENSORFLOW, LAST_TENSORFLOW
        return f"{package}>={first[0]}.{first[1]},<{last[0]}.{last[1] + 1}"

    def _checked(self, wanted: Wanted, roots: Sequence[str]) -> _Answer:
        answer = self._compile(wanted, roots)
        if not answer.fits:
            raise RequirementsError(
                f"{wanted.file} cannot be met on {self.kind.processor} with Python {self.kind.python}:\n{answer.words}",
                remedy="change the requirements; nothing was pushed or started",
            )
        if unlocked := [line for line in answer.lock.splitlines() if _UNLOCKED.match(line)]:
            raise RequirementsError(
                f"{wanted.file} names what no lock can hold: {unlocked[0]}",
                remedy="an environment of the program's own has packages of an index, or wheels that --find-links "
                "names; modules in the program's directory need no installation",
            )
        return answer

    def _compile(
        self, wanted: Wanted, roots: Sequence[str], *, constraints: Sequence[str] = (), find_links: str = ""
    ) -> _Answer:
        """Have uv resolve the requirements and `roots`, also with the wheels in `find_links`; then without hashes.

        Raises UnreachableIndexError where it reaches no index.
        """
        from uv import find_uv_bin

        place = [
            "--python",
            sys.executable,
            "--python-version",
            self.kind.python,
            "--python-platform",
            f"{self.kind.processor}-{LIBC}",
        ]
        form = ["--no-header", "--no-annotate", "--color", "never", *([] if find_links else ["--generate-hashes"])]
        # As pip, which the nodes use: the best version of all indexes, not that of the first that has the package.
        way = ["--index-strategy", "unsafe-best-match", "--quiet"]
        sources = [*([wanted.requirements] if wanted.requirements else []), "-"]
        # Horovod is there, or is built for it; its source distribution cannot even be asked what it needs.
        with _file_of(["horovod"]) as excluded, _file_of(constraints) as kept:
            files = ["--excludes", excluded, "--constraint", kept]
            done = subprocess.run(
                [find_uv_bin(), "pip", "compile", *sources, *place, *form, *way, *files],
                cwd=wanted.directory,
                env=uv_environment(self.environ, find_links),
                input="".join(f"{root}\n" for root in roots),
                capture_output=True,
                text=True,
                check=False,
            )
        words = done.stderr.strip()
        if done.returncode != 0 and UNREACHABLE.search(words):
            last = words.splitlines()[-1].strip().removeprefix("cause: ")
            url = re.search(r"https?://[^\s`)]+", words)
            raise UnreachableIndexError(
                f"this machine reaches no package index: {url[0] if url else 'uv'}: {last}",
                remedy="let uv reach one (UV_DEFAULT_INDEX or PIP_INDEX_URL names it)",
            )
        return _Answer(fits=done.returncode == 0, lock=done.stdout, words=words)


def write_stand_in(directory: Path, name: str, version: str) -> None:
    """Write a wheel of metadata alone: what the runtime has is there, also where no index is asked."""
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")


def uv_environment(environ: Mapping[str, str], find_links: str = "") -> dict[str, str]:
    """Return the environment for uv, to which pip's variables name places of packages as its own do.

    `find_links` is one more directory of wheels.
    """
    found = {**PATIENCE, **environ}
    for pips, uvs in PIP_VARIABLES.items():
        if (value := environ.get(pips)) and uvs not in environ:
            found[uvs] = ",".join(value.split()) if uvs == "UV_FIND_LINKS" else value
    if find_links:
        found["UV_FIND_LINKS"] = ",".join(filter(None, [found.get("UV_FIND_LINKS", ""), find_links]))
    return found


def check_tensorflow(version: str, wanted: Wanted) -> None:
    """Raise RequirementsError for a TensorFlow that Horovod is not known to build on."""
    if not FIRST_TENSORFLOW <= _numbers(version) <= LAST_TENSORFLOW:
        first, last = (".".join(map(str, pair)) for pair in (FIRST_TENSORFLOW, LAST_TENSORFLOW))
        raise RequirementsError(
            f"{wanted.file} asks for TensorFlow {version}; Horovod {HOROVOD_VERSION} is built for {first} to {last}",
            remedy=f"name one of these, as tensorflow-cpu=={last}.*, or start it with --launcher plain",
        )


def check_horovod(wanted: Wanted) -> None:
    """Raise RequirementsError where the requirements pin another Horovod than the one that is built."""
    pinned = re.search(r"^\s*horovod(?:\[[\w,-]*\])?\s*==\s*([^\s;#]+)", wanted.text, re.MULTILINE)
    if pinned and pinned[1] not in (HOROVOD_VERSION, "0.28.*"):
        raise RequirementsError(
            f"{wanted.file} asks for Horovod {pinned[1]}, and the nodes build {HOROVOD_VERSION}",
            remedy="leave the line out: Horovod is there, or is built, for every program that it starts",
        )


def option_lines(requirements: str) -> list[str]:
    """Return the lines that say where packages come from: the nodes ask there too."""
    return [line.strip() for line in requirements.splitlines() if _OPTION.match(line)]


def reason(packages: Mapping[str, str], kept: Mapping[str, str], wanted: Wanted) -> str:
    """Return in a few words why these packages cannot be laid over a runtime that has `kept`."""
    if wanted.uses_torch:
        return f"it imports {TORCH_MODULE}, and the runtime's Horovod is built for TensorFlow"
    differ = [f"{name} {kept[name]}" for name in KEPT if name in kept and packages.get(name, kept[name]) != kept[name]]
    return f"the runtime has {differ[0]}" if differ else "its requirements do not go with the runtime's"


def _keras_2(tensorflow: str) -> str:
    return f"{KERAS_2}=={'.'.join(tensorflow.split('.')[:2])}.*"


def _numbers(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@contextlib.contextmanager
def _file_of(lines: Sequence[str]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
        file.flush()
        yield file.name
