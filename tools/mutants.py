"""Change one place of a module at a time and check that its own test file notices. `make mutants` runs it.

    make mutants MODULES="agent/hardware/cpulist.py cluster/terminal/tables.py" SEED=7 PER_MODULE=5

The module a/b.py is tested with tests/a/test_b.py alone, on copies of the checkout. The changes are mutmut's. Its own
runner is not used: it leaves out functions with a decorator (so every property), module constants and field defaults,
has no sampling, and writes into the checkout. An operator is drawn first, then one of its changes: most places of a
module are strings and arguments, and few are comparisons.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import difflib
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import libcst
from mutmut.mutation.mutators import mutation_operators

ROOT: Final = Path(__file__).resolve().parent.parent
LINKED: Final = (".venv", "node_modules")  # installed, ignored by git, and only read by tests
TIMEOUT_FACTOR: Final = 5  # a mutant may loop forever: it gets this many times what the unchanged module took,
TIMEOUT_EXTRA_S: Final = 20  # and this much more, for a machine that has become busy since
PASSED: Final = 0


class MutantsError(ValueError):
    """Report a module that cannot be measured: no such file, no test file, or tests that fail before any change."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """Describe one changed copy of a module."""

    module: str  # relative to the root, as a/b.py
    operator: str  # as mutmut names it
    code: str
    diff: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """Describe what an operator makes of one node."""

    operator: str
    node: libcst.CSTNode
    becomes: libcst.CSTNode


class _Changes(libcst.CSTVisitor):
    """Collect what the operators can change, in the order of the text; annotations and decorators stay."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Change] = []

    def on_visit(self, node: libcst.CSTNode) -> bool:
        if isinstance(node, libcst.Annotation | libcst.Decorator | libcst.Import | libcst.ImportFrom):
            return False
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                name = operator.__name__.removeprefix("operator_")
                self.found += [Change(operator=name, node=node, becomes=becomes) for becomes in operator(node)]
        return True


def drawn_order(changes: Sequence[Change], drawn: random.Random) -> Iterator[Change]:
    """Yield all changes: each time draw an operator, then one of its changes."""
    by_operator: defaultdict[str, list[Change]] = defaultdict(list)
    for change in changes:
        by_operator[change.operator].append(change)
    while by_operator:
        operator = drawn.choice(sorted(by_operator))
        of_operator = by_operator[operator]
        yield of_operator.pop(drawn.randrange(len(of_operator)))
        if not of_operator:
            del by_operator[operator]


def sample(module: str, source: str, count: int, seed: int) -> list[Mutant]:
    """Return up to `count` mutants of a module that compile and differ from it in more than their layout."""
    tree, changes = libcst.parse_module(source), _Changes()
    tree.visit(changes)
    chosen: list[Mutant] = []
    shapes = {ast.dump(ast.parse(source))}
    # By the module's own name: a sample is the same whatever else is measured with it.
    draw = random.Random(f"{seed} {module}")  # noqa: S311  # a sample
    for change in drawn_order(changes.found, draw):
        if len(chosen) == count:
            break
        code = libcst.ensure_type(tree.deep_replace(change.node, change.becomes), libcst.Module).code
        with contextlib.suppress(SyntaxError):
            if (shape := ast.dump(ast.parse(code))) not in shapes:
                shapes.add(shape)
                diff = difflib.unified_diff(source.splitlines(), code.splitlines(), module, module, n=1, lineterm="")
                chosen.append(Mutant(module=module, operator=change.operator, code=code, diff="\n".join(diff)))
    return chosen


def file_of_tests(module: str) -> str:
    """Return the path of a module's own test file: tests/a/test_b.py for a/b.py."""
    path = Path(module)
    return str(Path("tests") / path.parent / f"test_{path.name}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkout:
    """Run tests in a copy of the checkout, one change at a time."""

    root: Path

    def run_tests(self, file: str, marks: str, *, timeout_s: float | None, keep_bytecode: bool = False) -> bool:
        """Return whether the tests of `file` under `marks` pass in time."""
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-m",
            marks,
            file,
        ]
        # Bytecode is valid by the second and the size of its source: a mutant may have both in common with another.
        environ = dict(os.environ) if keep_bytecode else {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            finished = subprocess.run(command, cwd=self.root, env=environ, capture_output=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return finished.returncode == PASSED

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Have the mutant in place of its module for the time of a block."""
        path = self.root / mutant.module
        original, times = path.read_bytes(), path.stat()
        path.write_text(mutant.code, encoding="utf-8")
        try:
            yield
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def copy_checkout(source: Path, target: Path) -> Checkout:
    """Copy all that git tracks or would track to `target`, and link what set-up installed."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=source, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)
    for name in LINKED:
        if (source / name).exists() and not (target / name).exists():
            (target / name).symlink_to((source / name).resolve())
    return Checkout(root=target)


def base_time_s(checkout: Checkout, module: str, marks: str) -> float:
    """Return what the tests of the unchanged module take; raise MutantsError where there are none or one fails."""
    file = file_of_tests(module)
    for path in (module, file):
        if not (checkout.root / path).is_file():
            raise MutantsError(f"{module}: no file {path}")
    started = time.monotonic()
    if not checkout.run_tests(file, marks, timeout_s=None, keep_bytecode=True):
        raise MutantsError(f"{module}: {file} fails, or has no test for -m '{marks}', before any change")
    return time.monotonic() - started


def survivors(
    mutants: Sequence[Mutant], checkouts: Sequence[Checkout], marks: str, timeouts_s: Mapping[str, float]
) -> Iterator[Mutant]:
    """Yield the mutants that their tests do not notice, in order; as many run at once as there are checkouts."""
    free: queue.SimpleQueue[Checkout] = queue.SimpleQueue()
    for checkout in checkouts:
        free.put(checkout)

    def survives(mutant: Mutant) -> bool:
        checkout = free.get()
        try:
            with checkout.changed(mutant):
                return checkout.run_tests(file_of_tests(mutant.module), marks, timeout_s=timeouts_s[mutant.module])
        finally:
            free.put(checkout)

    with ThreadPoolExecutor(len(checkouts)) as pool:
        for mutant, survived in zip(mutants, pool.map(survives, mutants), strict=True):
            if survived:
                yield mutant


def measure(modules: Sequence[str], *, per_module: int, seed: int, marks: str, jobs: int, root: Path = ROOT) -> int:
    """Print each survivor with its diff, and the counts; return how many survived."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        checkouts = [copy_checkout(root, Path(folder) / str(number)) for number in range(jobs)]
        chosen: list[Mutant] = []
        timeouts_s = {}
        for module in modules:
            timeouts_s[module] = TIMEOUT_FACTOR * base_time_s(checkouts[0], module, marks) + TIMEOUT_EXTRA_S
            source = (checkouts[0].root / module).read_text(encoding="utf-8")
            chosen += sample(module, source, per_module, seed)
        survived = 0
        for mutant in survivors(chosen, checkouts, marks, timeouts_s):
            survived += 1
            print(f"survived {mutant.operator}\n{mutant.diff}\n", flush=True)
    killed = len(chosen) - survived
    share = f" ({100 * killed / len(chosen):.0f} %)" if chosen else ""
    print(f"{len(chosen)} mutants of {len(modules)} modules, seed {seed}: {killed} killed{share}, {survived} survived")
    return survived


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the modules that the command line names."""
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__.splitlines()[0])
    parser.add_argument(
        "modules", nargs="+", metavar="MODULE", help="a module by its path, as agent/hardware/cpulist.py"
    )
    parser.add_argument("--per-module", type=int, default=3, help="mutants of each module (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws other mutants (default: %(default)s)")
    parser.add_argument("--marks", default="", help="tests to run, as pytest -m takes them (default: all of the file)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="copies of the checkout (default: one a core)"
    )
    given = parser.parse_args(arguments)
    try:
        measure(given.modules, per_module=given.per_module, seed=given.seed, marks=given.marks, jobs=given.jobs)
    except MutantsError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
