"""Have uv resolve requirements to a lock file for the processor and Python of nodes, and read its answer."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.spec.frameworks import TENSORFLOW_PACKAGES
from agent.spec.kinds import RuntimeKind
from cluster.errors import DeepcdkError
from cluster.programs.program_packages import Wanted, pinned

LIBC: Final = "manylinux_2_34"
"""Of Amazon Linux 2023; Debian 12, 13 and Ubuntu 24.04 have newer ones, which run what is built for this one."""
PIP_VARIABLES: Final = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
}
"""Where packages come from, as pip's variables say it, and uv's of the same meaning. uv reads its own configuration."""
PATIENCE: Final = {"UV_HTTP_RETRIES": "1", "UV_HTTP_CONNECT_TIMEOUT": "5"}
"""For an index that this machine does not reach: the nodes may reach one."""
UNREACHABLE: Final = re.compile(r"Failed to fetch|Request failed after")
UNPREPARED: Final = re.compile(
    r"Failed to build|Failed to download and build|build backend returned|Git operation failed"
)
"""uv must build what has no wheel, or lies in a repository, to learn what it needs."""
PLAIN: Final = (
    *("--no-header", "--no-annotate", "--no-universal", "--strip-extras", "--strip-markers", "--no-emit-index-url"),
    *("--no-emit-find-links", "--no-emit-build-options", "--no-emit-index-annotation", "--deps", "--color", "never"),
)
"""The form of a lock file: `[tool.uv.pip]` of the program's own pyproject.toml may ask for others."""
_UNLOCKED: Final = re.compile(r"^(\S+ @ |-e |\.|/|file:)")
_LOCKED: Final = re.compile(r"[A-Za-z0-9][\w.-]*==[^\s;\\]+(?: \\\n    --hash=[a-z0-9]+:[0-9a-f]+)+\n")


class UvError(DeepcdkError):
    """Report that uv is missing, broken, or configured to leave packages out."""


class UnresolvedHereError(DeepcdkError):
    """Report requirements that this machine cannot resolve, while the nodes may: no index, or no compiler."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What uv said."""

    fits: bool
    lock: str
    words: str

    @property
    def packages(self) -> dict[str, str]:
        """Return the versions of the packages, by their names."""
        return pinned(self.lock)

    @property
    def tensorflow(self) -> str:
        """Return the version of TensorFlow; empty without."""
        return next((self.packages[name] for name in TENSORFLOW_PACKAGES if name in self.packages), "")

    @property
    def unlocked(self) -> str:
        """Return the first line that is no package of an index; empty where each is one."""
        return next((line for line in self.lock.splitlines() if _UNLOCKED.match(line)), "")

    @property
    def unhashed(self) -> str:
        """Return the first entry that is not a package's version with hashes; empty where each is one."""
        entries = re.split(r"(?m)^(?=\S)", self.lock)
        return next((entry.splitlines()[0] for entry in entries if entry and not _LOCKED.fullmatch(entry)), "")


def ask(
    wanted: Wanted,
    kind: RuntimeKind,
    environ: Mapping[str, str],
    *,
    roots: Sequence[str] = (),
    constraints: Sequence[str] = (),
    excludes: Sequence[str] = (),
    find_links: str = "",
    with_hashes: bool = True,
) -> Answer:
    """Have uv resolve a program's requirements and `roots` for nodes of a kind.

    `constraints`: versions that packages must have if anything needs them. `excludes`: packages to leave out, whatever
    needs them. `find_links`: one more directory of wheels. Raises UnresolvedHereError where this machine cannot tell,
    and UvError where uv does not run.
    """
    with tempfile.TemporaryDirectory() as name:
        # In a file of our own: `output-file` in the program's pyproject.toml names one of the user's.
        lock, limits, left_out = (
            Path(name) / part for part in ("requirements.lock", "constraints.txt", "excludes.txt")
        )
        lock.touch()
        limits.write_text("\n".join(constraints), encoding="utf-8")
        left_out.write_text("\n".join(excludes), encoding="utf-8")
        done = subprocess.run(
            [
                *(uv_program(), "pip", "compile", *([wanted.requirements] if wanted.requirements else []), "-"),
                *("--python", sys.executable, "--python-version", kind.python),
                *("--python-platform", f"{kind.processor}-{LIBC}"),
                *("--constraint", str(limits), "--excludes", str(left_out), "--output-file", str(lock)),
                # As pip, which the nodes use: the best version of all indexes, not that of the first one that has any.
                *("--index-strategy", "unsafe-best-match", "--quiet", *PLAIN),
                *(["--generate-hashes"] if with_hashes else []),
            ],
            cwd=wanted.directory,
            env=uv_environment(environ, find_links),
            input="".join(f"{root}\n" for root in roots),
            capture_output=True,
            text=True,
            check=False,
        )
        words = without_passwords(done.stderr)
        answer = Answer(fits=done.returncode == 0, lock=lock.read_text(encoding="utf-8"), words=words)
    check_answer(answer, done.returncode)
    return answer


def check_answer(answer: Answer, status: int) -> None:
    """Raise UnresolvedHereError or UvError where uv ended with this status and its words are no answer."""
    if status == 0:
        return
    last = answer.words.splitlines()[-1].strip().removeprefix("cause: ") if answer.words else ""
    if UNREACHABLE.search(answer.words):
        url = re.search(r"https?://[^\s`)]+", answer.words)
        raise UnresolvedHereError(
            f"this machine reaches no package index: {url[0] if url else 'uv'}: {last}",
            remedy="let uv reach one (UV_DEFAULT_INDEX or PIP_INDEX_URL names it)",
        )
    if UNPREPARED.search(answer.words):
        raise UnresolvedHereError(
            f"this machine cannot build or bring a package that has no wheel, to ask what it needs:\n{answer.words}",
            remedy="name a version that has a wheel, or let this machine build it",
        )
    if not answer.words:
        raise UvError(f"uv ended with status {status} and said nothing", remedy="run `uv --version`; reinstall uv")


def without_passwords(words: str) -> str:
    """Return what uv said without the passwords of URLs; uv itself leaves out most of them."""
    return re.sub(r"(\w://[^\s/@:]*):[^\s/@]+@", r"\1:****@", words).strip()


def uv_program() -> str:
    """Return the path of uv, which is installed beside this project. Raises UvError."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        raise UvError(
            "uv, which resolves the requirements of programs, is not installed beside this project",
            remedy="install this project's requirements again: `make setup`",
        ) from None


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


def write_stand_in(directory: Path, name: str, version: str) -> None:
    """Write a wheel of metadata alone: what the runtime has is there, also where no index is asked."""
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(directory / f"{stem}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
