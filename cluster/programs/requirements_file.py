"""Read a program's requirements with the files that they include: what must reach the nodes beside the versions.

uv resolves the versions. Its answer leaves out where packages come from, which hashes the user allows for them, and
what is asked of Horovod, which is built and not resolved.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from agent.spec.kinds import RuntimeKind
from cluster.errors import DeepcdkError

_VALUE: Final = r")(?:\s*=\s*|\s*)(\S.*)"
_INCLUDE: Final = re.compile("(?:-r|--requirement" + _VALUE)
_CONSTRAINT: Final = re.compile("(?:-c|--constraint" + _VALUE)
_FIND_LINKS: Final = re.compile("(?:-f|--find-links" + _VALUE)
_SOURCE: Final = re.compile(
    r"(-i|--(index-url|extra-index-url|no-index|trusted-host|no-binary|only-binary|prefer-binary)\b).*"
)
_HASH: Final = re.compile(r"\s--hash[=\s]\s*([a-z0-9]+:[0-9a-fA-F]+)")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class RequirementsError(DeepcdkError):
    """Report requirements that no environment can have, in uv's words."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One requirement or option, its continuation lines joined and without its comment."""

    file: Path
    """The file that has it, relative to the program's directory."""
    text: str

    @property
    def requirement(self) -> Requirement | None:
        """Return it as a requirement by name; None for an option, a path or a URL."""
        try:
            return Requirement(re.split(r"\s--?[a-z]", self.text, maxsplit=1)[0])
        except InvalidRequirement:
            return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequirementsFile:
    """A requirements file of a program, with those that it includes."""

    directory: Path
    """The program's."""
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, directory: Path, name: str) -> RequirementsFile:
        """Read the file of this path in the program's `directory`; empty: none. Raises RequirementsError."""
        return cls(directory=directory, lines=tuple(_lines(directory, Path(name), ())) if name else ())

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options that say where packages come from, and in which form: the nodes ask there too.

        Directories that --find-links names are relative to the program's. Raises RequirementsError for one that the
        nodes would not have.
        """
        found = []
        for line in self.lines:
            if place := _FIND_LINKS.match(line.text):
                found.append(f"--find-links {shlex.quote(self._place(line, place[1].strip()))}")
            elif _SOURCE.match(line.text):
                found.append(line.text)
        return tuple(found)

    @property
    def hashes(self) -> dict[str, frozenset[str]]:
        """Return the hashes, as `sha256:...`, that the files of a package may have, by its normalized name."""
        found: dict[str, frozenset[str]] = {}
        for line in self.lines:
            if (requirement := line.requirement) and (hashes := _HASH.findall(line.text)):
                name = canonicalize_name(requirement.name)
                found[name] = found.get(name, frozenset()) | frozenset(each.lower() for each in hashes)
        return found

    def refusal(self, name: str, version: str, kind: RuntimeKind) -> str:
        """Return the first requirement that does not allow this version of a package there; empty where none does."""
        for line in self.lines:
            requirement = line.requirement
            if requirement is None or canonicalize_name(requirement.name) != name:
                continue
            if requirement.marker is not None and not _applies(requirement.marker, kind):
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                return f"{name}{requirement.specifier}"
        return ""

    def check_uploaded(self) -> None:
        """Raise RequirementsError for an included file that the nodes would not have: they read them again."""
        for line in self.lines:
            constraint = _CONSTRAINT.match(line.text)
            named = [line.file, *([line.file.parent / _unquoted(constraint[1])] if constraint else [])]
            for file in named:
                if not _URL.match(str(file)) and self._inside(self.directory / file) is None:
                    raise RequirementsError(
                        f"{file} is not uploaded: it is outside of the directory that --payload names",
                        remedy="put it in the program's directory",
                    )

    def _inside(self, place: Path) -> Path | None:
        """Return a path relative to the program's directory; None for one that is not uploaded with it."""
        try:
            return place.resolve().relative_to(self.directory.resolve())
        except ValueError:
            return None

    def _place(self, line: Line, given: str) -> str:
        """Return a place of --find-links as the nodes find it."""
        parts = urlsplit(given)
        if _URL.match(given) and parts.scheme != "file":
            return given
        path = Path(unquote(parts.path)) if parts.scheme == "file" else Path(_unquoted(given))
        place = self.directory / line.file.parent / path  # an absolute path stays as it is
        if (inside := self._inside(place)) is None:
            raise RequirementsError(
                f"the nodes would not have --find-links {given}: it is outside of the directory that --payload names",
                where=str(line.file),
                remedy="put the wheels in the program's directory, and name them by a relative path",
            )
        return inside.as_posix()


def locked_hashes(lock: str, allowed: Mapping[str, frozenset[str]]) -> str:
    """Return a lock file whose packages have no other hashes than the user's requirements allow.

    uv locks the hashes that an index tells now, whatever the requirements say. Raises RequirementsError for a package
    of which the index has no file with an allowed hash.
    """
    entries = re.split(r"(?m)^(?=\S)", lock)
    return "".join(_with_hashes(entry, allowed) for entry in entries)


def _with_hashes(entry: str, allowed: Mapping[str, frozenset[str]]) -> str:
    pin = re.match(r"([A-Za-z0-9][\w.-]*)==[^\s;\\]+", entry)
    wanted = allowed.get(canonicalize_name(pin[1])) if pin else None
    if pin is None or wanted is None:
        return entry
    there = frozenset(_HASH.findall(entry))
    kept = there & wanted
    if not kept and {each.partition(":")[0] for each in there} & {each.partition(":")[0] for each in wanted}:
        raise RequirementsError(
            f"no file of {pin[0]} has a hash that the requirements allow: the index has others than when they were "
            "written, or the hashes are of another version",
            remedy="see that the index is the right one; then correct the hashes",
        )
    # Hashes by another algorithm than the index tells are compared by pip, on the node.
    return "".join([pin[0], *(f" \\\n    --hash={each}" for each in sorted(kept or wanted)), "\n"])


def _lines(directory: Path, name: Path, including: tuple[Path, ...]) -> Iterator[Line]:
    for text in _joined(_text(directory, name)):
        included = _INCLUDE.match(text)
        if not included:
            yield Line(file=name, text=text)
            continue
        inner = name.parent / _unquoted(included[1])
        # uv reads what is named by a URL; a circle of files it refuses in its own words.
        if not _URL.match(included[1]) and inner not in (*including, name):
            yield from _lines(directory, inner, (*including, name))


def _text(directory: Path, name: Path) -> str:
    try:
        return (directory / name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise RequirementsError(
            f"{name} is not UTF-8", remedy="save it as UTF-8; PowerShell's `>` writes UTF-16"
        ) from None
    except OSError as error:
        raise RequirementsError(f"{name} cannot be read: {error.strerror}", remedy="correct it") from None


def _joined(text: str) -> Iterator[str]:
    """Yield the logical lines of a requirements file, as pip joins them, without comments and blank lines."""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield plain


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text


def _applies(marker: Marker, kind: RuntimeKind) -> bool:
    return marker.evaluate(
        {
            "python_version": kind.python,
            "python_full_version": f"{kind.python}.0",
            "platform_machine": kind.processor,
            "platform_system": "Linux",
            "sys_platform": "linux",
            "os_name": "posix",
            "extra": "",
        }
    )
