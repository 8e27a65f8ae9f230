"""Find the file that lists a program's packages, and convert formats that uv cannot read itself."""

from __future__ import annotations

import contextlib
import functools
import netrc
import re
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from cluster.errors import UsageError
from cluster.programs.python_environment import Wanted
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.secret_detection import masked
from cluster.terminal.paths import expanded, is_file
from cluster.terminal.status_line import warn

REQUIREMENTS: Final = "requirements.txt"
UV_LOCK: Final = "uv.lock"
PYLOCK: Final = "pylock.toml"
PYPROJECT: Final = "pyproject.toml"
UV_SETTINGS: Final = "uv.toml"
_INLINE: Final = re.compile(rb"^# /// script\s*$", re.MULTILINE)
READ: Final = (REQUIREMENTS, UV_LOCK, PYLOCK, PYPROJECT)
"""Supported files. The first one in the program's directory that lists packages is used."""
INDEX_VARIABLES: Final = (
    *("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
)
EXPORTS: Final = {
    "poetry.lock": "poetry export --without-hashes -o requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
    "Pipfile": "pipenv lock && pipenv requirements > requirements.txt",
    "pdm.lock": "pdm export --without-hashes -o requirements.txt",
    "environment.yml": "conda activate NAME && pip list --format=freeze > requirements.txt",
    "environment.yaml": "conda activate NAME && pip list --format=freeze > requirements.txt",
    "conda-lock.yml": "conda activate NAME && pip list --format=freeze > requirements.txt",
    "conda.yaml": "conda activate NAME && pip list --format=freeze > requirements.txt",
    "setup.py": "echo '-e .' > requirements.txt",
    "setup.cfg": "echo '-e .' > requirements.txt",
}
"""Unsupported files, each with the command that exports it to a supported format."""
_LISTS: Final = ("*requirements*.txt", "*requirements*.in", "requirements/*.txt")
"""Files that usually list packages, but are read only if they are given."""


def chosen_file(directory: Path, script: str = "") -> str:
    """Return the name of the file in a program's directory that lists its packages; "" if there is none.

    READ is the order of precedence. If there is no such file, the Python file `script` is returned if it has inline
    metadata as in PEP 723. Raises RequirementsError for an invalid pyproject.toml.
    """
    chosen = next((name for name in READ if is_file(directory / name) and _lists_packages(directory / name)), "")
    is_script = not chosen and script.endswith(".py") and is_file(directory / script)
    return script if is_script and _INLINE.search((directory / script).read_bytes()) else chosen


def notes(directory: Path, chosen: str) -> list[str]:
    """Return notes for the user: which file with packages is used and which are not, or how to use another one.

    `chosen` is the file that is used, or "". Without it, only the first of the other files is named. Returns [] for
    requirements.txt alone. Raises RequirementsError for an invalid pyproject.toml, even if it is not used.
    """
    # A requirement such as `.` uses setup.py.
    names = [name for name in (*READ, *EXPORTS) if name != chosen and not (chosen and name.startswith("setup."))]
    others = [name for name in names if is_file(directory / name)]
    others = [name for name in others if name not in READ or _lists_packages(directory / name)]
    if is_file(directory / PYPROJECT) and "poetry" in _table(_toml(directory / PYPROJECT), "tool"):
        others = list(dict.fromkeys([*others, "poetry.lock"] if chosen != PYPROJECT else others))
    if chosen:
        also = f" (not read: {', '.join(others)}; to choose: --requirements FILE)" if others else ""
        return [f"packages from {chosen}{also}"] if also or chosen != REQUIREMENTS else []
    if not others:
        found = sorted(path.relative_to(directory) for form in _LISTS for path in directory.glob(form))
        return [f"{name} is not read; to install its packages: --requirements {name}" for name in found[:1]]
    return [f"{name} is not read; to install its packages: {EXPORTS[name]}" for name in others[:1]]


def check_format(name: str) -> None:
    """Raise UsageError for a --requirements file in an unsupported format, with the command that exports it.

    Only the file's name decides.
    """
    base = Path(name).name
    if export := EXPORTS.get("environment.yml" if base.endswith((".yml", ".yaml")) else base):
        rule = f"has a format that deepcdk does not read; export it first: `{export}`, then give {REQUIREMENTS}"
        raise UsageError("--requirements", name, rule)


def is_pylock(name: str) -> bool:
    """Return whether a file name follows PEP 751: pylock.toml or pylock.NAME.toml."""
    base = Path(name).name
    return base.startswith("pylock.") and base.endswith(".toml")


def reads_as_text(name: str) -> bool:
    """Return whether a file lists requirements line by line; False for "" and for TOML and Python files."""
    has_other_form = Path(name).name in (UV_LOCK, PYPROJECT) or name.endswith(".py") or is_pylock(name)
    return bool(name) and not has_other_form


def sources(wanted: Wanted, uv: str, environ: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the program's requirements as two lists for `uv pip compile`: file arguments, and lines for its input.

    Both are empty for a program without requirements. Runs `uv export` for a uv.lock. `uv` is the path of uv. Raises
    RequirementsError for a file that cannot be read, or if --extra or --group is given for a file other than
    pyproject.toml and uv.lock.
    """
    name, base = wanted.requirements, Path(wanted.requirements).name
    file = wanted.directory / name
    if (wanted.extras or wanted.groups) and base not in (UV_LOCK, PYPROJECT):
        there = f"the program's file is {name}" if name else "the program has no such file"
        raise RequirementsError(
            f"--extra and --group choose dependencies of {PYPROJECT} or {UV_LOCK}, but {there}",
            remedy=f"leave them out, or give --requirements {PYPROJECT}",
        )
    extras = [word for extra in wanted.extras for word in ("--extra", extra)]
    if base == UV_LOCK:
        return [], _exported(file, [*extras, *(w for group in wanted.groups for w in ("--group", group))], uv, environ)
    if is_pylock(name):
        try:
            return [], _pylock_lines(file)
        except (AttributeError, TypeError):
            raise RequirementsError(
                f"{file} is not a lock file of PEP 751: its packages have another format",
                remedy=f"export it again: `uv export --format pylock.toml -o {base}`",
            ) from None
    if base == PYPROJECT:
        groups = [word for group in wanted.groups for word in ("--group", f"{name}:{group}")]
        return [name, *extras, *groups], [str(file.parent)] if is_package(file) else []
    return ([name] if name else []), []


def index_options(directory: Path, environ: Mapping[str, str]) -> set[str]:
    """Return lines `--extra-index-url URL` for the nodes' lock file.

    They name the indexes of this machine's variables and of the project's pyproject.toml in `directory`. Indexes with a
    password are left out, because the lock file is uploaded. This machine downloads their files.
    """
    hidden = {urlsplit(address).hostname or address for address in credentials(directory, environ)}
    urls = {url for _, url in _indexes(directory, environ) if url.startswith("http") and "@" not in url}
    return {f"--extra-index-url {url}" for url in urls if (parts := _split(url)) and parts.hostname not in hidden}


def credentials(directory: Path, environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return user and password by host name, for hosts in netrc, and by URL, for indexes that this machine signs in to.

    The URL of an index is without the user, as https://HOST:PORT/PATH. An index without a password of its own gets that
    of its host in netrc. Invalid URLs are skipped, because uv reports them. An unreadable netrc only prints a warning.
    Raises RequirementsError for an invalid pyproject.toml in `directory`.
    """
    hosts = _netrc(expanded(environ.get("NETRC") or "~/.netrc"))
    found = dict(hosts)
    for name, url in (*_indexes(directory, environ), *_indexes_in_settings(directory, environ)):
        if (parts := _split(url)) is None:
            continue
        variable = f"UV_INDEX_{re.sub('[^A-Z0-9]', '_', name.upper())}"
        user = environ.get(f"{variable}_USERNAME", "") or unquote(parts.username or "")
        password = environ.get(f"{variable}_PASSWORD", "") or unquote(parts.password or "")
        signed = (user, password) if user or password else hosts.get(parts.hostname or "")
        if parts.hostname and signed:
            netloc = parts.netloc.rpartition("@")[2]
            found[f"{parts.scheme}://{netloc}{parts.path or '/'}"] = signed
    return found


def _split(url: str) -> SplitResult | None:
    """Split a URL; None if it is invalid."""
    try:
        return urlsplit(url)
    except ValueError:
        return None


@functools.cache
def _netrc(file: Path) -> Mapping[str, tuple[str, str]]:
    """Return user and password by host from a netrc file, without its `default` entry; empty without the file.

    An unreadable file is ignored with a warning, as uv does.
    """
    try:
        hosts = netrc.netrc(file).hosts if is_file(file) else {}
    except (OSError, ValueError, netrc.NetrcParseError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        warn(f"{file} is not used, because it cannot be read: {why}. If a package index needs it, correct this file")
        return {}
    return {host: (login, word) for host, (login, _, word) in hosts.items() if host != "default"}


def _indexes(directory: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and URL of each index in this machine's variables and in the project's pyproject.toml. The name may be
    "".
    """
    words = [word for name in INDEX_VARIABLES for word in environ.get(name, "").split()]
    for word in words:
        found = re.match(r"([\w-]+)=(.*)", word)
        yield (found[1], found[2]) if found else ("", word)
    project = _table(_table(_toml(directory / PYPROJECT), "tool"), "uv") if is_file(directory / PYPROJECT) else {}
    yield from _index_entries(project)


def _index_entries(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield name and URL of each index in uv's settings. Malformed entries are skipped, because uv reports them."""
    for index in _list(settings, "index"):
        if isinstance(index, Mapping):
            yield str(index.get("name", "")), str(index.get("url"))


def _indexes_in_settings(directory: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and URL of each index in the file of UV_CONFIG_FILE, or else in uv's settings. The name may be "".

    These are the settings in the directory, its parents and the user's own. Files that cannot be read are skipped,
    because uv reports them.
    """
    users = expanded(environ.get("XDG_CONFIG_HOME") or "~/.config") / "uv"
    files = [place / name for place in (directory, *directory.parents, users) for name in (UV_SETTINGS, PYPROJECT)]
    for file in [expanded(given)] if (given := environ.get("UV_CONFIG_FILE")) else files:
        document: Mapping[str, Any] = {}
        with contextlib.suppress(RequirementsError):  # uv reports errors in files that it reads
            document = _toml(file) if is_file(file) else {}
        settings = _table(_table(document, "tool"), "uv") if file.name == PYPROJECT else document
        yield from _index_entries(settings)
        for each in (settings, _table(settings, "pip")):
            yield from (("", str(url)) for url in (each.get("index-url", ""), *_list(each, "extra-index-url")))


def is_package(pyproject: Path) -> bool:
    """Return whether uv would install the project itself, as `[tool.uv] package` says.

    Without this setting, uv does so if the project has a build system. Raises RequirementsError.
    """
    document = _toml(pyproject)
    return bool(_table(_table(document, "tool"), "uv").get("package", "build-system" in document))


def _lists_packages(file: Path) -> bool:
    """Return whether a file lists packages. Only a pyproject.toml may list none: it may contain just settings of tools.

    A pyproject.toml lists packages if its project has dependencies, or is itself installed as a package. Raises
    RequirementsError if it cannot be read.
    """
    if file.name != PYPROJECT:
        return True
    project = _table(_toml(file), "project")
    return bool(project.get("dependencies") or project.get("dynamic")) or (bool(project) and is_package(file))


def _exported(lock: Path, flags: Sequence[str], uv: str, environ: Mapping[str, str]) -> list[str]:
    """Return the requirements in a uv.lock, for all platforms, with their markers. `flags` are options for `uv export`.

    Dependency groups are included only if `flags` selects them, even uv's default groups. Raises RequirementsError.
    """
    command = [uv, "export", "--frozen", "--no-header", "--no-annotate", "--quiet"]
    done = subprocess.run(
        [*command, "--no-default-groups", "--format", "requirements.txt", *flags, "--directory", str(lock.parent)],
        env=dict(environ),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise RequirementsError(
            f"uv cannot read {lock}:\n{masked(done.stderr).strip()}",
            remedy="correct --extra and --group if the output names one of them; otherwise run `uv lock` in the "
            "directory of uv.lock",
        )
    text = done.stdout.replace("\\\n", " ")
    return [_absolute(line, lock.parent) for line in text.splitlines() if line.strip()]


def _absolute(line: str, directory: Path) -> str:
    """Return a requirement line of uv, with the path of a local package made absolute and not editable."""
    path, marker = line.removeprefix("-e ").partition(" ;")[::2]
    is_path = path.startswith((".", "/")) or line.startswith("-e ")
    return f"{(directory / path).resolve()}{' ;' * bool(marker)}{marker}" if is_path else line


def _pylock_lines(file: Path) -> list[str]:
    """Convert the packages of a PEP 751 lock file to requirements with hashes. Raises RequirementsError if it cannot be
    read, and TypeError or AttributeError for packages in another format.
    """
    lines = []
    for package in _toml(file).get("packages", ()):
        name, marker = str(package.get("name")), package.get("marker")
        vcs, directory, archive = (_table(package, kind) for kind in ("vcs", "directory", "archive"))
        if vcs:
            below = f"#subdirectory={vcs['subdirectory']}" if "subdirectory" in vcs else ""
            url = vcs.get("url") or (file.parent / str(vcs.get("path"))).resolve().as_uri()
            line = f"{name} @ {vcs.get('type')}+{url}@{vcs.get('commit-id')}{below}"
        elif directory:
            line = f"{name} @ {(file.parent / str(directory.get('path'))).resolve().as_uri()}"
        elif archive:
            line = f"{name} @ {archive.get('url') or (file.parent / str(archive.get('path'))).resolve().as_uri()}"
        else:
            line = f"{name}=={package.get('version')}"
        hashes = {f"{kind}:{value}" for each in _files(package) for kind, value in _table(each, "hashes").items()}
        allowed = "".join(f" --hash={each}" for each in sorted(hashes))
        lines.append(f"{line} ; {marker}{allowed}" if marker else f"{line}{allowed}")
    return lines


def _files(package: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else [])]


def _toml(file: Path) -> dict[str, Any]:
    """Read a TOML file. Raises RequirementsError if it cannot be read or parsed."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequirementsError(f"cannot read {file}: {error.strerror}", remedy="make the file readable") from None
    except ValueError as error:
        raise RequirementsError(f"{file} is not valid TOML: {error}", remedy="correct the file") from None


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key, {})
    return found if isinstance(found, Mapping) else {}


def _list(document: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = document.get(key, ())
    return found if isinstance(found, list) else ()
