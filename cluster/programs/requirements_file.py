"""Read requirements files with the files that they include, for facts that uv's answer leaves out.

uv resolves the versions. Its answer does not contain the indexes, the allowed hashes, and the requirement of Horovod,
which is built instead of resolved.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from agent.spec.node_kinds import RuntimeKind
from cluster.errors import DeepcdkError

_VALUE: Final = r")(?:\s*=\s*|\s*)(\S.*)"
_INCLUDE: Final = re.compile("(?:-r|--requirement" + _VALUE)
_FIND_LINKS: Final = re.compile("(?:-f|--find-links" + _VALUE)
_INDEX: Final = re.compile(r"(-i|--(index-url|extra-index-url|no-index|trusted-host)\b).*")
_EDITABLE: Final = re.compile(r"^(?:-e|--editable)[ =]+(git\+[^#\s]+)(?:#(\S+))?")
_HASH: Final = re.compile(r"\s--hash[=\s]\s*([a-z0-9]+:[0-9a-fA-F]+)")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class RequirementsError(DeepcdkError):
    """Report requirements that cannot be met or read. The message contains uv's reasons if uv rejected them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """One requirement or option, with continuation lines joined and comments removed."""

    file: Path
    """The file that contains it, relative to the program's directory."""
    text: str

    @property
    def requirement(self) -> Requirement | None:
        """Parse the line as a requirement with a name, without its per-requirement options.

        None for an option, a path, a URL, or an invalid requirement.
        """
        try:
            return Requirement(re.split(r"\s--?[a-z]", self.text, maxsplit=1)[0])
        except InvalidRequirement:
            return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequirementsFile:
    """The requirements of a program, including those of included files."""

    directory: Path
    """The program's directory."""
    lines: tuple[Line, ...]

    @classmethod
    def read(cls, directory: Path, name: str, more: Sequence[str] = ()) -> RequirementsFile:
        """Read a requirements file in the program's `directory`, and append `more` lines.

        With the name "", there are only these lines. Raises RequirementsError if a file cannot be read.
        """
        lines = tuple(_lines(directory, Path(name), ())) if name else ()
        return cls(directory=directory, lines=(*lines, *(Line(file=Path(name), text=text) for text in more)))

    @property
    def options(self) -> tuple[str, ...]:
        """Return the option lines that the nodes need too: indexes, trusted hosts, and --find-links with a URL.

        Local directories of --find-links are left out, because their wheels are uploaded instead.
        """
        return tuple(
            line.text
            for line in self.lines
            if _INDEX.match(line.text) or ((links := _FIND_LINKS.match(line.text)) and _URL.match(links[1]))
        )

    @property
    def without_editable(self) -> tuple[str, ...]:
        """Return all lines, with editable git repositories made non-editable; empty if no line has such a repository.

        `pip freeze` writes them, but uv accepts only directories as editable.
        """
        found = tuple(_EDITABLE.sub(_plain_repository, line.text) for line in self.lines)
        return found if found != tuple(line.text for line in self.lines) else ()

    @property
    def hashes(self) -> dict[str, frozenset[str]]:
        """Return the allowed hashes, such as `sha256:...`, by normalized package name. Packages without --hash are
        missing.
        """
        found: dict[str, frozenset[str]] = {}
        for line in self.lines:
            if (requirement := line.requirement) and (hashes := _HASH.findall(line.text)):
                name = canonicalize_name(requirement.name)
                found[name] = found.get(name, frozenset()) | frozenset(each.lower() for each in hashes)
        return found

    def excluding(self, name: str, version: str, kind: RuntimeKind) -> str:
        """Return the first requirement that excludes this version of a package on the nodes, such as `horovod<0.28`; ""
        if there is none.

        `name` is the normalized name. Requirements with a marker that does not apply to `kind` are skipped.
        """
        for line in self.lines:
            requirement = line.requirement
            if requirement is None or canonicalize_name(requirement.name) != name:
                continue
            if requirement.marker is not None and not _applies(requirement.marker, kind):
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                return f"{name}{requirement.specifier}"
        return ""


def _plain_repository(found: re.Match[str]) -> str:
    """Convert a match of _EDITABLE to a non-editable requirement: `NAME @ URL`, or the URL if the line has no name."""
    words = dict(word.partition("=")[::2] for word in (found[2] or "").split("&"))
    name, below = words.get("egg", "").partition("[")[0], words.get("subdirectory")
    url = f"{found[1]}#subdirectory={below}" if below else found[1]
    return f"{name.rpartition('-dev')[0] or name} @ {url}" if name else url


def allowed_hashes(name: str, version: str, there: frozenset[str], allowed: frozenset[str] | None) -> frozenset[str]:
    """Return those hashes of a package's files (`there`) that the requirements allow. If `allowed` is None, all are
    allowed.

    If the index and the requirements use different hash algorithms, `allowed` is returned. Raises RequirementsError if
    no file has an allowed hash.
    """
    if allowed is None:
        return there
    kept = there & allowed
    if not kept and {each.partition(":")[0] for each in there} & {each.partition(":")[0] for each in allowed}:
        raise RequirementsError(
            f"no file of {name}=={version} in the index has a hash that the requirements allow. The files in the index "
            "have changed, or the hashes are of another version",
            remedy=f"check whether the index is correct, then correct the hashes of {name} in the requirements",
        )
    # pip on the node compares the hashes if the index does not report this algorithm.
    return kept or allowed


def may_be_allowed(there: frozenset[str], allowed: frozenset[str]) -> bool:
    """Return whether a file may have an allowed hash. `there` are the file's known hashes.

    True without an equal hash too, if the known hashes use other algorithms than the allowed ones, because they cannot
    be compared.
    """
    kinds = {each.partition(":")[0] for each in there}
    return bool(there & allowed) or not any(each.partition(":")[0] in kinds for each in allowed)


def _lines(directory: Path, name: Path, including: tuple[Path, ...]) -> Iterator[Line]:
    """Yield the lines of a file and of the files that it includes. `including` are the files that lead to it.

    Included URLs, and files that include each other, are skipped. Raises RequirementsError.
    """
    for text in _joined(_text(directory, name)):
        included = _INCLUDE.match(text)
        if not included:
            yield Line(file=name, text=text)
            continue
        inner = name.parent / _unquoted(included[1])
        # uv reads files given by URL. It rejects files that include each other, with its own message.
        if not _URL.match(included[1]) and inner not in (*including, name):
            yield from _lines(directory, inner, (*including, name))


def _text(directory: Path, name: Path) -> str:
    """Return the text of a requirements file. Raises RequirementsError if it is not UTF-8 or cannot be read."""
    try:
        return (directory / name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise RequirementsError(
            f"{name} is not UTF-8", remedy="save it as UTF-8; PowerShell's `>` writes UTF-16"
        ) from None
    except OSError as error:
        raise RequirementsError(
            f"{name} cannot be read: {error.strerror}", remedy="correct the path, or make the file readable"
        ) from None


def _joined(text: str) -> Iterator[str]:
    """Yield the logical lines of a requirements file, joined as in pip, without comments and blank lines."""
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        if plain := re.sub(r"(^|\s)#.*", "", line).strip():
            yield plain


def _unquoted(text: str) -> str:
    try:
        return " ".join(shlex.split(text))
    except ValueError:
        return text


def _applies(marker: Marker, kind: RuntimeKind) -> bool:
    """Return whether a requirement's marker applies to nodes of this kind."""
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
