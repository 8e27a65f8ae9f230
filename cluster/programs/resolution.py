"""Which environment a program's requirements need, resolved by uv on the laptop, before anything is pushed or started.

Requirements that the nodes' runtime allows are laid over it. Others get an environment of the program's own: every
package of it is resolved here, for the nodes' processor and Python, and Horovod is built for the frameworks among them.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.version import Version

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
from cluster.programs import uv_compile
from cluster.programs.program_packages import RUNTIME, TORCH_MODULE, Environment, Wanted, pinned
from cluster.programs.requirements_file import RequirementsError, RequirementsFile, locked_hashes
from cluster.programs.uv_compile import Answer, UvError, write_stand_in

LOCKS: Final = {"x86_64": "requirements.txt", "aarch64": "requirements-aarch64.txt"}
GPU_LOCK: Final = "requirements-gpu.txt"
KERAS_2: Final = "tf-keras"
FIRST_WITH_KERAS_3: Final = (2, 16)
ONE_TENSORFLOW: Final = TENSORFLOW_PACKAGES[:2]
"""Two names of one package: both install the same files, and the later one overwrites those of the other."""
HOROVOD: Final = "horovod"
NOTHING_DONE: Final = "nothing was pushed or started"


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

        Raises RequirementsError; UnresolvedHereError where this machine cannot tell; UvError where uv does not run.
        """
        asked = RequirementsFile.read(wanted.directory, wanted.requirements)
        check_horovod(asked, wanted, self.kind)
        there = self._runtime()
        kept = {name: version for name, version in there.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
        if not wanted.uses_torch and self._fits_over(wanted, there, kept):
            asked.check_uploaded()
            return RUNTIME
        return self._own(wanted, asked, kept)

    def _runtime(self) -> dict[str, str]:
        """Return the versions of the runtime's packages; TensorFlow has each of its names."""
        name = GPU_LOCK if self.kind.has_gpus else LOCKS[self.kind.processor]
        there = pinned((self.locks / name).read_text(encoding="utf-8"))
        version = next(there[name] for name in TENSORFLOW_PACKAGES if name in there)
        return there | dict.fromkeys(ONE_TENSORFLOW, version)

    def _fits_over(self, wanted: Wanted, there: Mapping[str, str], kept: Mapping[str, str]) -> bool:
        """Return whether the requirements can be met by packages over the runtime, which has `there`."""
        roots = [_keras_2(there[TENSORFLOW])] if wanted.keras == 2 else []
        constraints = [f"{name}=={version}" for name, version in kept.items()]
        with tempfile.TemporaryDirectory() as wheels:
            for name, version in there.items():
                write_stand_in(Path(wheels), name, version)
            return self._ask(wanted, roots, constraints=constraints, find_links=wheels, with_hashes=False).fits

    def _own(self, wanted: Wanted, asked: RequirementsFile, kept: Mapping[str, str]) -> Environment:
        """Resolve an environment of the program's own, in place of the runtime, which has `kept`."""
        options = asked.options
        roots = [*(HOROVOD_NEEDS if wanted.horovod else ())]
        found = self._checked(wanted, [])
        if wanted.uses_torch and TORCH not in found.packages:
            raise RequirementsError(
                f"the program imports {TORCH_MODULE}, and its requirements bring no {TORCH}",
                remedy=f"name {TORCH} in the program's requirements.txt",
            )
        if (wanted.uses_tensorflow and not found.tensorflow) or (found.tensorflow and self.kind.has_gpus):
            roots.append(self._tensorflow_root())
        found = self._checked(wanted, roots)
        keras = 3 if not found.tensorflow or _numbers(found.tensorflow) >= FIRST_WITH_KERAS_3 else 2
        tf_keras = bool(wanted.keras == 2 and keras == 3 and found.tensorflow)
        if tf_keras:
            found = self._checked(wanted, [*roots, _keras_2(found.tensorflow)])
        if wanted.horovod and found.tensorflow:
            check_tensorflow(found.tensorflow, wanted)
        check_locked(found, wanted)
        lock = locked_hashes(found.lock, asked.hashes)
        built_for = {TENSORFLOW: wanted.uses_tensorflow, TORCH: wanted.uses_torch}
        return Environment(
            lock="".join(f"{line}\n" for line in (*options, *lock.splitlines())),
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

    def _checked(self, wanted: Wanted, roots: Sequence[str]) -> Answer:
        """Resolve the requirements and `roots`, with TensorFlow under one name. Raises RequirementsError."""
        answer = self._fitting(wanted, roots)
        names = [name for name in ONE_TENSORFLOW if name in answer.packages]
        if len(names) < 2:
            return answer
        keep = TENSORFLOW if self.kind.has_gpus else names[0]
        version = self._common_version(wanted, roots, {answer.packages[name] for name in names})
        others = [name for name in names if name != keep]
        # Named as a root too: what needs it may know it by its other name alone.
        return self._fitting(wanted, [*roots, keep], constraints=[f"{keep}=={version}"], excludes=others)

    def _common_version(self, wanted: Wanted, roots: Sequence[str], versions: Collection[str]) -> str:
        """Return the version in which TensorFlow serves what asks for it by either name. Raises RequirementsError."""
        for version in sorted(versions, key=Version):
            if self._ask(wanted, roots, constraints=[f"{name}=={version}" for name in ONE_TENSORFLOW]).fits:
                return version
        raise RequirementsError(
            f"{wanted.file} brings {' and '.join(ONE_TENSORFLOW)}, which are one package, and no version serves both: "
            f"{', '.join(sorted(versions))}",
            remedy=f"name one of them, in a version that all other requirements go with; {NOTHING_DONE}",
        )

    def _fitting(
        self, wanted: Wanted, roots: Sequence[str], *, constraints: Sequence[str] = (), excludes: Sequence[str] = ()
    ) -> Answer:
        answer = self._ask(wanted, roots, constraints=constraints, excludes=excludes)
        if not answer.fits:
            raise RequirementsError(
                f"{wanted.file} cannot be met on {self.kind.processor} with Python {self.kind.python}:\n{answer.words}",
                remedy=f"change the requirements; {NOTHING_DONE}",
            )
        if answer.unlocked:
            raise RequirementsError(
                f"{wanted.file} names what no lock can hold: {answer.unlocked}",
                remedy="an environment of the program's own has packages of an index, or wheels that --find-links "
                "names; modules in the program's directory need no installation",
            )
        return answer

    def _ask(self, wanted: Wanted, roots: Sequence[str], *, excludes: Sequence[str] = (), **more: Any) -> Answer:
        # Horovod is built for it; its source distribution cannot even be asked what it needs.
        return uv_compile.ask(wanted, self.kind, self.environ, roots=roots, excludes=[HOROVOD, *excludes], **more)


def check_tensorflow(version: str, wanted: Wanted) -> None:
    """Raise RequirementsError for a TensorFlow that Horovod is not known to build on."""
    if not FIRST_TENSORFLOW <= _numbers(version) <= LAST_TENSORFLOW:
        first, last = (".".join(map(str, pair)) for pair in (FIRST_TENSORFLOW, LAST_TENSORFLOW))
        raise RequirementsError(
            f"{wanted.file} asks for TensorFlow {version}; Horovod {HOROVOD_VERSION} is built for {first} to {last}",
            remedy=f"name one of these, as tensorflow-cpu=={last}.*, or start it with --launcher plain",
        )


def check_horovod(asked: RequirementsFile, wanted: Wanted, kind: RuntimeKind) -> None:
    """Raise RequirementsError where the requirements ask for another Horovod than the one that is built."""
    if refusal := asked.refusal(HOROVOD, HOROVOD_VERSION, kind):
        raise RequirementsError(
            f"{wanted.file} asks for {refusal}, and the nodes build {HOROVOD_VERSION}",
            remedy="leave the line out: Horovod is there, or is built, for every program that it starts",
        )


def check_locked(found: Answer, wanted: Wanted) -> None:
    """Raise RequirementsError for a package without a hash, and UvError for a lock in another form than asked."""
    if found.unhashed in [f"{name}=={version}" for name, version in found.packages.items()]:
        raise RequirementsError(
            f"{wanted.file}: the index tells no hash of {found.unhashed}, by which nodes know that they got the same",
            remedy="take it from an index that tells hashes, or put its wheel in the program's directory, with the "
            "line --find-links",
        )
    if found.unhashed:
        raise UvError(
            f"uv locked {found.unhashed}, which is not a version with hashes",
            remedy="see [tool.uv.pip] in the program's pyproject.toml, uv.toml and the variables UV_...",
        )


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
