"""Install a program's packages on top of the runtime, without changing the runtime that other programs use.

The laptop locks the packages that the runtime lacks. One node stores them as wheels on the shared file system, and
every node installs them from there. For a notebook without requirements, that node resolves JupyterLab itself. An
overlay is the virtual environment ROOT/FINGERPRINT in the login user's home.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from agent.environment import package_index
from agent.environment.virtual_environment import (
    LockedEnvironment,
    RuntimeSetupError,
    VirtualEnvironment,
    requirement_lines,
)
from agent.files.build_once import temporary_directory_of
from agent.spec.frameworks import KEPT, KEPT_PREFIX

TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu")
"""The same package under two names. Each satisfies a requirement for the other."""
_PACKAGES: Final = """
import importlib.metadata, json, re, sysconfig
found = importlib.metadata.distributions()
found = {re.sub('[-_.]+', '-', each.metadata['Name']).lower(): each.version for each in found}
print(json.dumps([sysconfig.get_path('purelib'), found]))
"""


_CONFLICT: Final = ("ResolutionImpossible", "conflicting dependencies", "No matching distribution found")
"""Phrases in pip's output that report incompatible versions. Other failures are unrelated to the nodes' versions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer(VirtualEnvironment):
    """A virtual environment whose Python also imports the packages of the runtime."""

    name: ClassVar[str] = "the environment with the program's packages"
    runtime: Path
    """Path of the runtime's Python."""

    def prepare(self) -> None:
        """Make the runtime's packages importable after the overlay's own, and provide both names of TensorFlow."""
        below, kept = self.runtime_packages()
        (self.site_packages / "runtime.pth").write_text(f"import site; site.addsitedir({below!r})\n")
        for name in TENSORFLOW:
            if name not in kept:
                self._stand_in(name, next(kept[other] for other in TENSORFLOW if other in kept))

    def runtime_packages(self) -> tuple[str, dict[str, str]]:
        """Return the runtime's package folder, and the versions of its packages that an overlay must keep, by name.

        Raises RuntimeSetupError.
        """
        output = self.run("Listing the runtime's packages", [str(self.runtime), "-c", _PACKAGES])
        below, found = json.loads(output.splitlines()[-1])
        return below, {name: found[name] for name in found if name in KEPT or name.startswith(KEPT_PREFIX)}

    def _stand_in(self, name: str, version: str) -> None:
        """Add metadata of a package `name` with this version: TensorFlow's other name, for packages that require it."""
        folder = self.site_packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "INSTALLER").write_text("deepcdk\n")
        (folder / "RECORD").write_text("")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LockedOverlay(Layer, LockedEnvironment):
    """The packages of a program's lock file, on top of the runtime."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: the platform, the packages and the runtime."""
        return {**super().inputs, "runtime": str(self.runtime)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlay(Layer):
    """Requirements that a node resolves, on top of the runtime."""

    program: Path
    """Directory of the pushed program. Requirements can refer to files in it."""
    requirements: str
    """Path of the requirements file in `program`; empty if there are only `further` requirements."""
    further: tuple[str, ...]
    """More requirements, in pip's syntax."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Return the inputs of the fingerprint: the runtime and all requirements.

        If the requirements file refers to files, the program's tree is an input too.
        """
        text = self._text
        inputs = {"runtime": str(self.runtime), "further": "\n".join(self.further)}
        inputs |= {"requirements": "\n".join(requirement_lines(text))}
        # The tree's name is the hash of all its files.
        return inputs | ({"tree": self.program.parent.name} if refers_to_files(text) else {})

    @property
    def _text(self) -> str:
        """Return the content of the requirements file; "" if there is none. Raises RuntimeSetupError."""
        if not self.requirements:
            return ""
        try:
            return (self.program / self.requirements).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            raise RuntimeSetupError(f"{self.requirements} of the program is not UTF-8; save it as UTF-8") from None
        except OSError as error:
            raise RuntimeSetupError(
                f"cannot read {self.requirements} of the program: {error.strerror}; check that the file is in the "
                "program's directory, and start the program again"
            ) from None

    def bring(self, wheels: Path) -> None:
        """Resolve the requirements, and build wheels of the packages that the runtime lacks in the folder `wheels`.

        The packages that Horovod depends on keep their versions. Raises RuntimeSetupError.
        """
        temporary = temporary_directory_of(self.directory)
        constraints, report, sources = (temporary / name for name in ("constraints.txt", "report.json", "sources.txt"))
        _, kept = self.runtime_packages()
        pinned = {**dict.fromkeys(TENSORFLOW, next(kept[name] for name in TENSORFLOW if name in kept)), **kept}
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))
        named = package_index.is_named_in(self._text)
        trouble = "" if named else package_index.missing(self.installer.python)
        offline = ["--no-index"] if trouble else []
        wanted = [*(["--requirement", self.requirements] if self.requirements else []), *self.further]
        there = ", ".join(f"{name} {version}" for name, version in sorted(pinned.items()))
        hint = (
            f"These versions on the nodes cannot change: {there}. Remove the packages from the "
            "requirements, or allow these versions."
        )
        try:
            resolve = ["--dry-run", "--report", str(report), "--constraint", str(constraints), *wanted]
            self.pip("Resolving the requirements", "install", "--quiet", *offline, *resolve, cwd=self.program)
            found = parse_report(json.loads(report.read_text(encoding="utf-8")))
            sources.write_text("".join(f"{source}\n" for source in found))
            hint = ""
            if found:
                build = ["--no-deps", "--wheel-dir", str(wheels), "--requirement", str(sources)]
                self.pip("Building wheels", "wheel", "--quiet", *offline, *build, cwd=self.program)
        except RuntimeSetupError as error:
            fits = not any(word in str(error) for word in _CONFLICT)
            raise RuntimeSetupError(f"{error}\n{trouble or hint * (not fits)}".rstrip()) from None


def refers_to_files(requirements: str) -> bool:
    """Return whether the text of a requirements file refers to files of the program, which are then inputs too."""
    name = re.compile(
        r"(-[rcef]\b|--(requirement|constraint|editable|find-links)\b|\.|/|file:|[^ ]+\.whl)|.*@ *(file:|\.)"
    )
    return any(name.match(line) for line in requirement_lines(requirements))


def parse_report(report: Mapping[str, Any]) -> list[str]:
    """Parse pip's installation report into one requirement per package to install, as `NAME @ URL`."""
    sources = []
    for entry in report["install"]:
        download = entry["download_info"]
        url = download["url"]
        if commit := download.get("vcs_info", {}).get("commit_id"):
            url = f"{download['vcs_info']['vcs']}+{url}@{commit}"
        sources.append(f"{entry['metadata']['name']} @ {url}")
    return sources
