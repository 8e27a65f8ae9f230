"""Find modules that a program imports and the nodes may lack, before anything costs money.

A module's name does not determine its distribution, so without metadata the names are compared. A warning can therefore
be wrong. It never stops a run.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.metadata
import re
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from cluster.programs.entry_starts import Start
from cluster.programs.python_ast import is_guard, modules, names_in
from cluster.programs.python_environment import RUNTIME_MODULES, Environment

MAX_SHOWN: Final = 8
REMOVED: Final = {
    12: {"asynchat", "asyncore", "distutils", "imp", "smtpd"},
    13: {
        "aifc", "audioop", "cgi", "cgitb", "chunk", "crypt", "imghdr", "lib2to3", "mailcap", "msilib", "nis", "nntplib",
        "ossaudiodev", "pipes", "sndhdr", "spwd", "sunau", "telnetlib", "uu", "xdrlib",
    },
}  # fmt: skip
"""Modules that were removed from the standard library, by the minor version of Python 3."""
ADDED: Final = {11: {"tomllib"}, 14: {"annotationlib", "compression"}}
VARYING: Final = frozenset().union(*REMOVED.values(), *ADDED.values())
STANDARD_LIBRARY: Final = (frozenset(sys.stdlib_module_names) | {"__main__"}) - VARYING
_PATHS: Final = {"rootutils", "pyrootutils", "autorootcwd", "addsitedir", "setup_root"}
"""Names that change where Python looks for modules, in addition to `sys.path`."""
DISTRIBUTIONS: Final = {
    "Crypto": "pycryptodome", "MySQLdb": "mysqlclient", "OpenGL": "pyopengl", "OpenSSL": "pyopenssl", "PIL": "pillow",
    "attr": "attrs", "bs4": "beautifulsoup4", "cv2": "opencv-", "distutils": "setuptools", "fitz": "pymupdf",
    "git": "gitpython", "google": "protobuf", "igraph": "python-igraph", "mpl_toolkits": "matplotlib",
    "pkg_resources": "setuptools", "pl_bolts": "lightning-bolts", "pylab": "matplotlib", "serial": "pyserial",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "skopt": "scikit-optimize", "wx": "wxpython",
    "yaml": "pyyaml", "zmq": "pyzmq",
}  # fmt: skip
"""Distributions of modules with a different name. A name that ends in - is a prefix of several variants."""


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Import:
    """One module that a program imports."""

    file: str
    line: int
    module: str
    """Top-level name: `sklearn` for `sklearn.svm`."""
    is_conditional: bool = False
    """Whether it is in a function or under an `if`, and may therefore never run."""


_LAST: Final = Import(file="\U0010ffff", line=0, module="")
"""Sorts after all imports."""


def missing(
    directory: Path,
    scripts: Collection[Path],
    uploaded: Collection[Path],
    environment: Environment,
    python: Callable[[], str],
    *,
    horovod: bool,
) -> list[Import]:
    """Return one import of each module that Python, the program's files and its environment all seem to lack.

    It is the first import, and an unconditional one if possible. The result is sorted by file and line. `scripts` are
    the Python files that the entry starts; modules that they import are read too. `uploaded` are the program's files,
    relative to `directory`. `python` returns the nodes' Python version, such as 3.12, or "" if it is unknown. It is
    called only for modules that some versions lack. `horovod` means that Horovod starts the program. Imports that may
    fail, in a `try` for example, do not count.
    """
    own = {name for path in uploaded for name in (*path.parts[:-1], path.name.partition(".")[0])}
    known = own | _installed_modules(environment, horovod=horovod)
    names = {str(canonicalize_name(name)) for name in environment.packages}
    names |= frozenset() if environment.own else RUNTIME_MODULES
    found: dict[str, Import] = {}
    for path, tree in (pair for script in scripts for pair in modules(directory, script)):
        for each in sorted(imports(tree, str(path.relative_to(directory)))):
            before = found.get(each.module)
            if each.module not in known and (before is None or before.is_conditional > each.is_conditional):
                found[each.module] = each
    if found.keys() & VARYING:  # ask for the version late: most programs import none of these
        found = {name: each for name, each in found.items() if name not in standard_library(python())}
    return sorted(each for each in found.values() if not is_in(each.module, names))


def unreachable(
    directory: Path, begun: Sequence[Start], uploaded: Collection[Path], environment: Environment, *, horovod: bool
) -> list[Import]:
    """Return the first import of each of the program's own modules that Python would not find on the nodes.

    `begun` is what the entry starts. `uploaded` are the program's files, relative to `directory`. `horovod` means that
    Horovod starts the program. Python looks in the script's directory, or in the current one for `-m`, and in installed
    packages. Returns [] if a program or a shell text changes the search path. Imports in functions and under conditions
    do not count.
    """
    scripts = [each.path for each in begun if each.path and each.kind == "python"]
    trees = [pair for script in scripts for pair in modules(directory, script)]
    if any("PYTHONPATH" in each.text for each in begun) or any(_changes_path(tree) for _, tree in trees):
        return []
    code = [path for path in uploaded if path.suffix in (".py", ".so")]
    there = {directory / each for path in code for each in (path, *path.parents)}
    roots = {root for each in begun for root in each.roots}
    known = _installed_modules(environment, horovod=horovod)
    names = {str(canonicalize_name(name)) for name in environment.packages}
    found: dict[str, Import] = {}
    entries = [Import(file=each.name, line=1, module=each.module) for each in begun if each.module and each.path]
    for each in (*entries, *(one for path, tree in trees for one in imports(tree, str(path.relative_to(directory))))):
        if not each.is_conditional and each.module not in known and each < found.get(each.module, _LAST):
            found[each.module] = each

    def is_below(places: Collection[Path], module: str) -> bool:
        return any(place in there for root in places for place in (root / module, root / f"{module}.py"))

    return sorted(
        each
        for name, each in found.items()
        if is_below((directory, directory / "src"), name) and not is_below(roots, name) and not is_in(name, names)
    )


def _installed_modules(environment: Environment, *, horovod: bool) -> frozenset[str]:
    """Return the top-level modules that the nodes have without downloaded packages.

    They are the modules of Python, of local wheels and of the runtime. If the program's own environment replaces the
    runtime, only Horovod is added instead, and only if the program uses it. `horovod`: Horovod starts the program.
    """
    known = STANDARD_LIBRARY | _modules_of([path for path in environment.wheels if path.suffix == ".whl"])
    if not environment.own:
        return known | RUNTIME_MODULES
    return known | {"horovod"} if horovod or environment.horovod_for else known


def describe_unreachable(found: Sequence[Import], directory: Path) -> str:
    """Return the warning that Python would not find the first module in `found`, with what to do.

    `found` is the result of `unreachable`, and not empty.
    """
    first = found[0]
    shown = f"{first.module} ({first.file}:{first.line})"
    is_at_top = (directory / first.module).exists() or (directory / f"{first.module}.py").exists()
    path = "." if is_at_top else "src"
    return (
        f"the nodes would not find a module of the program: {shown} is in {path}, which is not on Python's path. Give "
        f"--env PYTHONPATH={path}; if the program is a package, name it as -e . in the requirements"
    )


def _changes_path(tree: ast.AST) -> bool:
    """Return whether a module may change where Python looks for modules: by `sys.path`, or a name such as rootutils."""
    named = {each.module for each in imports(tree, "")} | names_in(tree)
    return bool(named & _PATHS) or any(
        isinstance(node, ast.Attribute) and node.attr == "path" and names_in(node.value) == {"sys"}
        for node in ast.walk(tree)
    )


def describe(found: Sequence[Import], file: str) -> str:
    """Return the warning about modules that the nodes may lack. It names at most MAX_SHOWN of `found`.

    `found` is the result of `missing`. `file` lists the program's packages; "" if the program has no such file.
    """
    shown = [
        f"{each.module} ({each.file}:{each.line}{', under a condition' * each.is_conditional}"
        f"{', not in their Python' * (each.module in VARYING)})"
        for each in found
    ]
    more = ", ..." if shown[MAX_SHOWN:] else ""
    listed = f"{', '.join(shown[:MAX_SHOWN])}{more}"
    return f"the nodes may lack imported modules: {listed}; name their packages in {file or 'requirements.txt'}"


def standard_library(python: str) -> frozenset[str]:
    """Return the top-level modules of the standard library of a Python version such as 3.12; "": the running Python."""
    minor = int(python.partition(".")[2] or sys.version_info[1])
    gone = [removed for since, removed in REMOVED.items() if minor >= since]
    later = [added for since, added in ADDED.items() if minor < since]
    return (STANDARD_LIBRARY | VARYING).difference(*gone, *later)


def is_in(module: str, distributions: Collection[str]) -> bool:
    """Return whether one of these distributions probably contains a module.

    Their names decide, and the packages that are installed on this machine. `module` is a top-level name,
    `distributions` are normalized names, such as scikit-learn.
    """
    plain, known = canonicalize_name(module), DISTRIBUTIONS.get(module, "")
    if {plain, f"py{plain}", known} & set(distributions):
        return True
    if known.endswith("-") and any(name.startswith(known) for name in distributions):
        return True
    if any(re.search(rf"(^|-){re.escape(plain)}(-|$)", name) for name in distributions):
        return True
    return not {canonicalize_name(name) for name in _installed().get(module, ())}.isdisjoint(distributions)


@functools.cache
def _installed() -> Mapping[str, Sequence[str]]:
    """Return the names of the distributions on this machine that contain each top-level module. This takes a second."""
    return importlib.metadata.packages_distributions()


def imports(tree: ast.AST, file: str) -> Iterator[Import]:
    """Yield the absolute imports of a file, except those for type checkers and those in code that handles a failed
    import.

    `file` is the name to report. Imports in functions and under an `if` are marked as conditional, except those under
    `if __name__ == "__main__"`.
    """
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, is_conditional = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            absolute = isinstance(node, ast.Import) or (node.module and not node.level)
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for top in [name.partition(".")[0] for name in names if absolute]:
                yield Import(file=file, line=node.lineno, module=top, is_conditional=is_conditional)
        elif isinstance(node, ast.If) and names_in(node.test) & {"TYPE_CHECKING"}:
            waiting += [(other, is_conditional) for other in node.orelse]
        elif not is_guard(node):
            is_main = isinstance(node, ast.If) and "__name__" in names_in(node.test)
            is_branch = isinstance(node, ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not is_main
            waiting += [(child, is_conditional or is_branch) for child in ast.iter_child_nodes(node)]


def _modules_of(wheels: Sequence[Path]) -> set[str]:
    """Return the top-level names of the modules in local wheels."""
    found: set[str] = set()
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            found |= {re.split(r"[/.]", name, maxsplit=1)[0] for name in archive.namelist()}
    return found
