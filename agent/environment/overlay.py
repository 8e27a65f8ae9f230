"""Install a program's own packages into an overlay: a virtual environment over the runtime, one for each content.

One node resolves the requirements against what the runtime has, and builds what is missing into wheels on the shared
file system; every node, that one too, installs from there. So all nodes have the same versions, and the runtime, which
other programs use, does not change. An overlay is a directory ROOT/FINGERPRINT in the login user's home.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agent.files.build_once import build_directory_once
from agent.files.temporary_files import temporary_directory_of, temporary_files_beside, with_temporary_files
from agent.spec.frameworks import KEPT, KEPT_PREFIX

PINS: Final = "pins.txt"
TENSORFLOW: Final = ("tensorflow", "tensorflow-cpu")
"""One package under two names: each satisfies a requirement for the other."""


class OverlayError(RuntimeError):
    """Report requirements that cannot be installed, and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Overlay:
    """An overlay, by its inputs."""

    runtime: Path
    """The runtime's Python."""
    program: Path
    """The pushed program's directory; requirements may name files in it."""
    requirements: str
    """Path of the requirements within it; empty: only `further`."""
    further: tuple[str, ...]
    """More requirements, as pip reads them."""
    root: Path
    wheelhouse: Path

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that are the same for the same packages on the same runtime."""
        text = self.read(self.requirements) if self.requirements else ""
        parts = [str(self.runtime), "\n".join(requirement_lines(text)), *self.further]
        if refers_to_files(text):
            # The tree's name is the hash of all its files.
            parts.append(self.program.parent.name)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

    @property
    def directory(self) -> Path:
        return self.root / self.fingerprint

    @property
    def python(self) -> Path:
        """Return the Python to run the program with."""
        return self.directory / "bin" / "python"

    @property
    def wheels(self) -> Path:
        """Return the folder on the shared file system from which all nodes install."""
        return self.wheelhouse / f"program-{self.fingerprint}"

    def read(self, name: str) -> str:
        """Return the text of a file of the program. Raises OverlayError."""
        try:
            return (self.program / name).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise OverlayError(f"{name} cannot be read: {error}") from None


def requirement_lines(requirements: str) -> list[str]:
    """Return the lines of a requirements file, without comments and blank lines."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in requirements.splitlines())
    return [line for line in lines if line]


def refers_to_files(requirements: str) -> bool:
    """Return whether requirements name other files of the program, whose content then counts too."""
    name = re.compile(
        r"(-[rcef]\b|--(requirement|constraint|editable|find-links)\b|\.|/|file:|[^ ]+\.whl)|.*@ *(file:|\.)"
    )
    return any(name.match(line) for line in requirement_lines(requirements))


def names_index(requirements: str) -> bool:
    """Return whether requirements themselves say which index pip is to ask, or that it is to ask none."""
    option = re.compile(r"(-[irc]|--index-url\b|--extra-index-url\b|--no-index\b|--(requirement|constraint)\b)")
    return any(option.match(line) for line in requirement_lines(requirements))


def parse_report(report: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Parse pip's installation report: the source of each package that the runtime lacks, and its name with version."""
    sources, pins = [], []
    for entry in report["install"]:
        name, version, download = entry["metadata"]["name"], entry["metadata"]["version"], entry["download_info"]
        url = download["url"]
        if commit := download.get("vcs_info", {}).get("commit_id"):
            url = f"{download['vcs_info']['vcs']}+{url}@{commit}"
        sources.append(f"{name} @ {url}")
        pins.append(f"{name}=={version}")
    return sources, pins


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverlayBuilder:
    """Build an overlay on this node."""

    overlay: Overlay
    report: Callable[[str], None]

    def ensure(self) -> Path:
        """Return the overlay's Python; build the overlay first unless it is complete. Raises OverlayError."""
        overlay = self.overlay
        build_directory_once(
            overlay.directory,
            self._make,
            lock=overlay.directory.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for another process that makes {overlay.directory}"),
        )
        return overlay.python

    def _make(self) -> str:
        """Make the environment and install into it; return its pins."""
        with temporary_files_beside(self.overlay.directory):
            return self._install()

    def _install(self) -> str:
        overlay = self.overlay
        base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        self._run("Making a virtual environment", [base, "-m", "venv", "--without-pip", str(overlay.directory)])
        packages = self._site_packages(overlay.python)
        below = self._site_packages(overlay.runtime)
        # The runtime's packages, pip among them, are found after the overlay's own.
        (packages / "runtime.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
        pinned = self._pinned()
        for name in TENSORFLOW:
            if name not in pinned:
                self._stand_in(packages, name, next(pinned[other] for other in TENSORFLOW if other in pinned))
        constraints = {**dict.fromkeys(TENSORFLOW, next(pinned[n] for n in TENSORFLOW if n in pinned)), **pinned}
        build_directory_once(
            overlay.wheels,
            lambda: self._fill(constraints),
            lock=overlay.wheels.with_suffix(".lock"),
            on_wait=lambda: self.report(f"waiting for the node that fills {overlay.wheels}"),
        )
        pins = (overlay.wheels / PINS).read_text(encoding="utf-8")
        if pins:
            self.report("installing the program's own requirements")
            offline = ["--no-index", "--no-deps", "--ignore-installed", "--find-links", str(overlay.wheels)]
            self._pip("Installing", "install", *offline, "--requirement", str(overlay.wheels / PINS))
        return pins

    def _fill(self, pinned: Mapping[str, str]) -> str:
        """Resolve what the runtime lacks, and build it as wheels on the shared file system; return its pins."""
        from agent.environment import package_index  # HTTP and TLS, which nodes without an overlay do without

        overlay = self.overlay
        self.report(f"building wheels of the program's requirements in {overlay.wheels}")
        overlay.wheels.mkdir(parents=True)
        constraints, report, sources = (
            overlay.wheels / name for name in ("constraints.txt", "report.json", "sources.txt")
        )
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in sorted(pinned.items())))
        wanted = [*(["--requirement", overlay.requirements] if overlay.requirements else []), *overlay.further]
        resolve = ["--dry-run", "--report", str(report), "--constraint", str(constraints), *wanted]
        lacking = package_index.missing(overlay.python) if self._uses_configured_index() else ""
        offline = ["--no-index"] if lacking else []
        hint = [lacking] if lacking else _pinned_hint(pinned)
        self._pip("Resolving the requirements", "install", *offline, *resolve, hint=hint)
        found, pins = parse_report(json.loads(report.read_text(encoding="utf-8")))
        sources.write_text("".join(f"{line}\n" for line in found))
        if found:
            build = ["--no-deps", "--wheel-dir", str(overlay.wheels), "--requirement", str(sources)]
            self._pip("Building wheels", "wheel", *offline, *build, hint=[lacking] if lacking else [])
        text = "".join(f"{pin}\n" for pin in pins)
        (overlay.wheels / PINS).write_text(text)
        return text

    def _uses_configured_index(self) -> bool:
        """Return whether pip is to ask the indexes of its own configuration: the requirements name no others."""
        overlay = self.overlay
        return not (overlay.requirements and names_index(overlay.read(overlay.requirements)))

    def _pinned(self) -> dict[str, str]:
        """Return the versions of the runtime's packages that must not change."""
        code = (
            "import importlib.metadata as m, json, re; found = m.distributions(); "
            "print(json.dumps({re.sub('[-_.]+', '-', d.metadata['Name']).lower(): d.version for d in found}))"
        )
        found = json.loads(self._run("Asking the runtime for its packages", [str(self.overlay.runtime), "-c", code]))
        return {name: version for name, version in found.items() if name in KEPT or name.startswith(KEPT_PREFIX)}

    def _stand_in(self, packages: Path, name: str, version: str) -> None:
        """Add metadata of TensorFlow under its other name, for packages that require it by that one."""
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "INSTALLER").write_text("deepcdk\n")
        (folder / "RECORD").write_text("")

    def _site_packages(self, python: Path) -> Path:
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        return Path(self._run("Asking a Python for its packages", [str(python), "-c", code]).strip())

    def _pip(self, step: str, *arguments: str, hint: Sequence[str] = ()) -> None:
        options = ["--no-input", "--disable-pip-version-check", "--quiet"]
        self._run(step, [str(self.overlay.python), "-m", "pip", arguments[0], *options, *arguments[1:]], hint=hint)

    def _run(self, step: str, command: Sequence[str], *, hint: Sequence[str] = ()) -> str:
        env = with_temporary_files(os.environ, temporary_directory_of(self.overlay.directory))
        done = subprocess.run(command, cwd=self.overlay.program, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            # Warnings of retries differ between nodes; equal messages of all nodes are reported once.
            lines = [line for line in lines if not line.startswith(("WARNING:", "[notice]"))]
            raise OverlayError("\n".join([f"{step} failed with status {done.returncode}", *lines[-3:], *hint]))
        return done.stdout


def _pinned_hint(pinned: Mapping[str, str]) -> list[str]:
    there = ", ".join(f"{name} {version}" for name, version in sorted(pinned.items()))
    return [f"The nodes have, and keep: {there}. Leave them out of the requirements, or allow these versions."]
