"""Choose the environment for a program's requirements. uv resolves it on the laptop before anything is pushed.

If the nodes' runtime meets the requirements, missing packages are installed on top of it. Otherwise the program gets
its own environment, in which Horovod is built for its frameworks. All packages are resolved here for the nodes'
processor and Python, and locked by hash. The nodes install exactly those wheels.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from agent.spec.frameworks import (
    HOROVOD_FILE,
    HOROVOD_NEEDS,
    HOROVOD_SHA256,
    HOROVOD_VERSION,
    KEPT,
    KEPT_PREFIX,
    TENSORFLOW,
    TENSORFLOW_PACKAGES,
    TORCH,
)
from agent.spec.node_kinds import RuntimeKind
from cluster.programs import requirements_formats, uv_compile
from cluster.programs.python_environment import TORCH_MODULE, Environment, Wanted, pinned
from cluster.programs.requirements_file import RequirementsError, RequirementsFile, allowed_hashes, may_be_allowed
from cluster.programs.secret_detection import masked
from cluster.programs.tensorflow_versions import ONE_TENSORFLOW, check_tensorflow, has_keras_2, keras_2, tensorflow_root
from cluster.programs.uv_compile import ONE_BY_ONE, Answer, File, Package, UnresolvedHereError, write_stand_in
from cluster.programs.wheel_build import WheelBuilder, sha256_of

LOCKS: Final = {"x86_64": "requirements.txt", "aarch64": "requirements-aarch64.txt"}
GPU_LOCK: Final = "requirements-gpu.txt"
HOROVOD: Final = "horovod"
TORCH_BACKEND: Final = "UV_TORCH_BACKEND"
NOTHING_DONE: Final = "nothing was uploaded or started"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolver:
    """Resolve the requirements of programs for the hosts of a run."""

    kind: RuntimeKind
    """Kind of the hosts, including their Python."""
    locks: Path
    """Directory of the runtime's lock files."""
    environ: Mapping[str, str]
    notes: list[str] = dataclasses.field(default_factory=list, compare=False)
    """Notes for the user on the choice of packages."""

    def resolve(self, wanted: Wanted) -> Environment:
        """Return the environment for a program: the runtime with added packages if possible, or else its own packages.

        Runs uv, which downloads from package indexes, and builds wheels that are missing. Adds to `notes`. Raises
        RequirementsError; UnresolvedHereError if this machine cannot resolve them; UvError if uv does not run.
        """
        files, lines = requirements_formats.sources(wanted, uv_compile.uv_program(), self.environ)
        reads_text = requirements_formats.reads_as_text(wanted.requirements)
        asked = RequirementsFile.read(wanted.directory, wanted.requirements if reads_text else "", lines)
        if plain := asked.without_editable:
            files, lines = [], list(plain)
        wanted = dataclasses.replace(wanted, files=tuple(files), lines=tuple(lines))
        if excluding := asked.excluding(HOROVOD, HOROVOD_VERSION, self.kind):
            raise RequirementsError(
                f"{wanted.label} requires {excluding}, but the nodes build {HOROVOD} {HOROVOD_VERSION}",
                remedy=f"remove {HOROVOD} from the requirements; the nodes install it for every program that uses it",
            )
        there = self._runtime()
        kept = {name: version for name, version in there.items() if name in KEPT or name.startswith(KEPT_PREFIX)}
        over = None if wanted.uses_torch else self._over_runtime(wanted, there, kept)
        if over is None:
            return self._own(wanted, asked, kept)
        more = [package for package in over.found if there.get(package.name) != package.version]
        return self._locked(more, wanted, asked, Environment(over_runtime=True, tf_keras=wanted.keras == 2))

    def _runtime(self) -> dict[str, str]:
        """Return the versions of the runtime's packages by name, from the lock file for these hosts. TensorFlow is
        included under each of its names.
        """
        name = GPU_LOCK if self.kind.has_gpus else LOCKS[self.kind.processor]
        there = pinned((self.locks / name).read_text(encoding="utf-8"))
        version = next(there[name] for name in TENSORFLOW_PACKAGES if name in there)
        return there | dict.fromkeys(ONE_TENSORFLOW, version)

    def _over_runtime(self, wanted: Wanted, there: Mapping[str, str], kept: Mapping[str, str]) -> Answer | None:
        """Return uv's answer with packages that meet the requirements on top of the runtime; None if that is
        impossible.

        `there` are all packages of the runtime. `kept` are those that must not change. Raises UnresolvedHereError and
        UvError.
        """
        roots = [keras_2(there[TENSORFLOW])] if wanted.keras == 2 else []
        constraints = [f"{name}=={version}" for name, version in kept.items()]
        stand_ins = dict(there)

        def asked(*options: str) -> Answer:
            with tempfile.TemporaryDirectory() as wheels:
                for name, version in stand_ins.items():
                    write_stand_in(Path(wheels), name, version)
                more: dict[str, Any] = {"constraints": constraints, "find_links": wheels, "preferred": there}
                return self._ask(wanted, roots, options=options, **more)

        try:
            alone = asked("--no-index")
            if alone.fits and not alone.without_extra - kept.keys() and alone.packages.items() <= there.items():
                return alone  # no index is needed
        except UnresolvedHereError:
            pass
        found = asked()
        while found.fits and (lacking := (found.without_extra & stand_ins.keys()) - kept.keys()):
            for name in lacking:  # a stand-in has no extras
                del stand_ins[name]
            found = asked()
        return found if found.fits else None

    def _own(self, wanted: Wanted, asked: RequirementsFile, kept: Mapping[str, str]) -> Environment:
        """Resolve the program's own environment, which replaces the runtime.

        It includes Horovod's source if Horovod starts the program, TensorFlow if Horovod needs it, and tf-keras for
        Keras 2. `kept` are the packages that cannot change in the runtime; the result's `why` names the first that
        differs here. Raises RequirementsError.
        """
        roots = [*(HOROVOD_NEEDS if wanted.horovod else ())]
        found = self._checked(wanted, [])
        if wanted.uses_torch and TORCH not in found.packages:
            raise RequirementsError(
                f"the program imports {TORCH_MODULE}, but its requirements do not include {TORCH}",
                remedy=f"add {TORCH} to {wanted.requirements or 'a requirements.txt in its directory'}",
            )
        if (wanted.uses_tensorflow and not found.tensorflow) or (found.tensorflow and self.kind.has_gpus):
            roots.append(tensorflow_root(self.kind))
        found = self._checked(wanted, roots)
        keras = 2 if found.tensorflow and has_keras_2(found.tensorflow) else 3
        tf_keras = bool(wanted.keras == 2 and keras == 3 and found.tensorflow)
        if tf_keras:
            found = self._checked(wanted, [*roots, keras_2(found.tensorflow)])
        if wanted.horovod and found.tensorflow:
            check_tensorflow(found.tensorflow, wanted)
        built_for = {TENSORFLOW: wanted.uses_tensorflow, TORCH: wanted.uses_torch}
        environment = Environment(
            horovod_for=tuple(name for name, is_used in built_for.items() if is_used),
            keras=keras,
            tf_keras=tf_keras,
            why=reason(found.packages, kept, wanted),
            wheels=(self._horovod(wanted),) if wanted.horovod else (),
        )
        return self._locked(found.found, wanted, asked, environment)

    def _horovod(self, wanted: Wanted) -> Path:
        """Return the path of Horovod's source distribution on this machine, from the program's indexes.

        One node builds it. The nodes may not reach these indexes. Raises RequirementsError if no index has the file, or
        if it differs from the release.
        """
        # uv reads no metadata of this file, which would need a build.
        roots, options = [f"{HOROVOD}=={HOROVOD_VERSION}"], ("--no-deps", "--no-binary", HOROVOD)
        answer = uv_compile.ask(wanted, self.kind, self.environ, roots=roots, options=options)
        package = next((package for package in answer.found if package.name == HOROVOD), None)
        if package is None or package.sdist is None:
            raise RequirementsError(
                f"{HOROVOD_FILE}, which the nodes build for this program, is in none of its package indexes:\n"
                f"{answer.reasons}",
                remedy=f"add an index or a --find-links directory that has this file; {NOTHING_DONE}",
            )
        path = self._builder(wanted).local(package, package.sdist)
        if (found := sha256_of(path)) != HOROVOD_SHA256:
            raise RequirementsError(
                f"{HOROVOD_FILE} of {masked(package.sdist.url)} has SHA-256 {found}, but the release has "
                f"{HOROVOD_SHA256}",
                remedy=f"use an index that has the file of the release; {NOTHING_DONE}",
            )
        return path

    def _builder(self, wanted: Wanted) -> WheelBuilder:
        signed = requirements_formats.credentials(wanted.directory, self.environ)
        return WheelBuilder(kind=self.kind, environ=self.environ, credentials=signed)

    def _locked(
        self, packages: Sequence[Package], wanted: Wanted, asked: RequirementsFile, environment: Environment
    ) -> Environment:
        """Return `environment` with the lock file, the local wheels and the notes for `packages`.

        Missing wheels are built. `asked` has the options and hashes of the requirements file. Raises RequirementsError.
        """
        options = {
            "--only-binary :all:",
            *asked.options,
            *requirements_formats.index_options(wanted.directory, self.environ),
        }
        lines, wheels, downloaded = [], [*environment.wheels], 0
        allowed = asked.hashes
        for package in packages:
            file, hashes = self._file(package, allowed.get(canonicalize_name(package.name)), wanted)
            pin = f"{package.name}=={parse_wheel_filename(file.name)[1]}"
            if file.path is None:
                downloaded += file.size_bytes
                if "+" in pin or file.is_direct:  # the nodes may not have its index
                    pin = f"{package.name} @ {file.url}"
            elif (inside := Path(os.path.relpath(file.path, wanted.directory))) in wanted.uploaded:
                options.add(f"--find-links {shlex.quote(inside.parent.as_posix())}")
            else:
                wheels.append(file.path)
            lines.append("".join([pin, *(f" \\\n    --hash={each}" for each in sorted(hashes)), "\n"]))
        lock = "".join([*(f"{option}\n" for option in sorted(options)), *lines])
        return dataclasses.replace(
            environment, lock=lock, wheels=tuple(wheels), download_bytes=downloaded, notes=tuple(self.notes)
        )

    def _file(self, package: Package, allowed: frozenset[str] | None, wanted: Wanted) -> tuple[File, frozenset[str]]:
        """Choose a package's wheel, or build it on this machine. Return it with the hashes to write to the lock file.

        A wheel that the nodes cannot download is downloaded here. `allowed` are the hashes in the requirements file for
        this package; None: any hash is allowed. Raises RequirementsError, for example if the build fails, or if the
        index has no hash or no allowed hash.
        """
        builder = self._builder(wanted)
        found = builder.best([file for file in package.wheels if not allowed or may_be_allowed(file.hashes, allowed)])
        if found is None and package.wheels and not package.sdist:
            found = builder.best(package.wheels)
        if found is None:
            source = package.sdist
            if source and allowed is not None:
                allowed_hashes(package.name, package.version, source.hashes, allowed)
            found = builder.build(package)
            return found, found.hashes
        found = builder.installable(package, found)
        hashes = frozenset(each for file in package.wheels for each in file.hashes) or found.hashes
        if found.path is not None and not hashes:
            hashes = frozenset({f"sha256:{sha256_of(found.path)}"})
        if not hashes:
            raise RequirementsError(
                f"{wanted.label}: the index has no hash of {package.name}=={package.version}, but the nodes install "
                "only files with a known hash",
                remedy="use an index that has hashes, or download its wheel, and add a line `--find-links DIRECTORY` "
                "with its directory",
            )
        return found, allowed_hashes(package.name, package.version, hashes, allowed)

    def _checked(self, wanted: Wanted, roots: Sequence[str]) -> Answer:
        """Resolve the requirements and `roots`, with TensorFlow under only one of the names in ONE_TENSORFLOW.

        If uv chooses both names, one is left out, and the other gets the version of `_common_version`.
        Raises RequirementsError if the requirements cannot be met.
        """
        answer = self._fitting(wanted, roots)
        names = [name for name in ONE_TENSORFLOW if name in answer.packages]
        if len(names) < 2:
            return answer
        keep = TENSORFLOW if self.kind.has_gpus else names[0]
        version = self._common_version(wanted, roots, {answer.packages[name] for name in names})
        others = [name for name in names if name != keep]
        # Include it in the roots: a package may depend on it only by its other name.
        return self._fitting(wanted, [*roots, keep], constraints=[f"{keep}=={version}"], excludes=others)

    def _common_version(self, wanted: Wanted, roots: Sequence[str], versions: Collection[str]) -> str:
        """Return the lowest of `versions` of TensorFlow that meets the requirements under both names. Raises
        RequirementsError.
        """
        for version in sorted(versions, key=Version):
            if self._ask(wanted, roots, constraints=[f"{name}=={version}" for name in ONE_TENSORFLOW]).fits:
                return version
        raise RequirementsError(
            f"{wanted.label} includes {' and '.join(ONE_TENSORFLOW)}, which are the same package, and no version meets "
            f"the requirements of both: {', '.join(sorted(versions))}",
            remedy=f"name only one of them, in a version that fits all other requirements; {NOTHING_DONE}",
        )

    def _fitting(
        self, wanted: Wanted, roots: Sequence[str], *, constraints: Sequence[str] = (), excludes: Sequence[str] = ()
    ) -> Answer:
        """Resolve a program's requirements and `roots` with uv, and return its answer.

        `constraints` limit versions, `excludes` are packages to leave out. Raises RequirementsError if the requirements
        cannot be met.
        """
        answer = self._ask(wanted, roots, constraints=constraints, excludes=excludes)
        if not answer.fits and "not found in the package registry" in answer.words:
            answer = self._ask(wanted, roots, constraints=constraints, excludes=excludes, options=ONE_BY_ONE)
        if not answer.fits:
            raise RequirementsError(
                f"{wanted.label} cannot be resolved for {self.kind.processor} with Python {self.kind.python}:\n"
                f"{answer.reasons}",
                remedy=f"change the requirements; {NOTHING_DONE}",
            )
        return answer

    def _ask(
        self,
        wanted: Wanted,
        roots: Sequence[str],
        *,
        excludes: Sequence[str] = (),
        options: Sequence[str] = (),
        **more: Any,
    ) -> Answer:
        """Ask uv to resolve the program's requirements and `roots`, without Horovod and the packages in `excludes`.

        `options` are more options for uv, `more` further arguments of `uv_compile.ask`. On nodes without GPUs,
        PyTorch's build for CPUs is used instead of the CUDA build if possible. If not, a note is added to `notes`. If
        UV_TORCH_BACKEND is set, uv's choice is kept without a note.
        """

        def asked(*options: str) -> Answer:
            # Horovod is built separately. uv could not even read the requirements of its source distribution.
            left_out = [HOROVOD, *excludes]
            return uv_compile.ask(
                wanted, self.kind, self.environ, roots=roots, excludes=left_out, options=options, **more
            )

        answer = asked(*options)
        has_cuda = any(name.startswith(KEPT_PREFIX) for name in answer.packages)
        if self.kind.has_gpus or TORCH not in answer.packages or not has_cuda or self.notes:
            return answer
        if TORCH_BACKEND in self.environ:
            return answer
        try:
            smaller = asked(*options, "--torch-backend", "cpu")
            trouble = "" if smaller.fits else f"the requirements do not allow it: {smaller.reasons.splitlines()[-1]}"
        except UnresolvedHereError as error:
            smaller, trouble = answer, f"its index could not be reached: {error.what.partition(': ')[2]}"
        if not trouble:
            return smaller
        self.notes.append(
            f"{TORCH} is the CUDA build, but the nodes have no GPUs. The CPU build is smaller, but {trouble}"
        )
        return answer


def reason(packages: Mapping[str, str], kept: Mapping[str, str], wanted: Wanted) -> str:
    """Return briefly why a program needs its own `packages` instead of a runtime with the packages `kept`."""
    if wanted.uses_torch:
        return f"it imports {TORCH_MODULE}, but the runtime's Horovod is built for TensorFlow"
    differ = [f"{name} {kept[name]}" for name in KEPT if name in kept and packages.get(name, kept[name]) != kept[name]]
    if differ:
        return f"the runtime has {differ[0]}"
    return "its requirements are not compatible with the runtime's packages"
