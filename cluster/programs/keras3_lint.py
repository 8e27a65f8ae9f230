"""Find uses of Horovod and tf.distribute in a program that fail or train wrongly with Keras 3, before anything costs
money.
"""

from __future__ import annotations

import ast
import dataclasses
import re
import warnings
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeGuard

from cluster.errors import DeepcdkError

_MODULES: Final = ("horovod.tensorflow.keras", "horovod.keras", "horovod.tensorflow")
_TRAPS: Final = {
    "DistributedOptimizer": "does not average under Keras 3, without an error: the ranks' weights diverge",
    "DistributedGradientTape": "fails under Keras 3 for the variables of a model; use [v.value for v in ...]",
    "callbacks.LearningRateWarmupCallback": "fails under Keras 3",
    "callbacks.LearningRateScheduleCallback": "fails under Keras 3",
    "elastic.KerasState": "fails under Keras 3",
    "elastic.TensorFlowKerasState": "fails under Keras 3",
}
_STRATEGY: Final = "MultiWorkerMirroredStrategy"
_STEPS: Final = ("fit", "evaluate", "train_on_batch", "test_on_batch")
"""Methods of Keras 3 that fail in this strategy if it has several workers. `predict` and loops with `strategy.run`
work.
"""
LEGACY: Final = "TF_USE_LEGACY_KERAS"
_TRAP_OF: Final = {f"{module}.{trap}": trap for module in _MODULES for trap in _TRAPS}
_GUARDS: Final = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
SILENT: Final = ("DistributedOptimizer",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trap:
    """One use of Horovod or tf.distribute that does not work with Keras 3."""

    file: str
    line: int
    name: str

    @property
    def is_silent(self) -> bool:
        """Return whether the program would continue and train wrongly, without an error."""
        return self.name in SILENT

    @property
    def is_for_several(self) -> bool:
        """Return whether this use fails only on several nodes."""
        return self.name in _STEPS

    def __str__(self) -> str:
        if self.is_for_several:
            return f"{self.file}:{self.line}: {self.name}() fails under Keras 3 in {_STRATEGY} on several nodes"
        return f"{self.file}:{self.line}: hvd.{self.name} {_TRAPS[self.name]}"


class KerasTrapError(DeepcdkError):
    """Report a program that would train wrongly without an error, or fail at its first step. `traps` are the uses that
    cause it.
    """

    def __init__(self, traps: list[Trap]) -> None:
        self.traps = traps
        is_wrong = any(trap.is_silent for trap in traps)
        super().__init__(
            f"this program would {'train incorrectly' if is_wrong else 'fail'}:"
            + "".join(f"\n  {trap}" for trap in traps),
            remedy="give --keras 2 (tf.keras and keras are then Keras 2). If the program does not run this code, "
            f"give --keras 3{'; it is stopped if it does run it' if is_wrong else ''}",
        )


def find(directory: Path, script: Path) -> list[Trap]:
    """Find the traps in a script and in the modules that it imports, sorted by file and line.

    Traps are uses of Horovod and tf.distribute that do not work with Keras 3. Calls such as `fit` are traps only if the
    program compiles a model, uses MultiWorkerMirroredStrategy, and does not choose Keras 2.
    """
    read = [(path, tree, set(_uses(tree))) for path, tree in modules(directory, script)]
    if _fits_in_strategy([tree for _, tree, _ in read]):
        for _, tree, uses in read:
            uses.update((call.lineno, name) for call, name in _method_calls(tree) if name in _STEPS)
    found = [
        Trap(file=str(path.relative_to(directory)), line=line, name=name)
        for path, _, uses in read
        for line, name in uses
    ]
    return sorted(found, key=lambda trap: (trap.file, trap.line, trap.name))


def _uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each trap in a module. Aliases of Horovod's modules are resolved."""
    names = import_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and (name := _trap(dotted(node), names)):
            yield node.lineno, name


def _fits_in_strategy(trees: Sequence[ast.AST]) -> bool:
    """Return whether a program's modules use MultiWorkerMirroredStrategy, compile a model for `fit`, and do not choose
    Keras 2.
    """
    named, compiles = set[str](), False
    for tree in trees:
        named |= {part for name in imports(tree) for part in name.split(".")} | names_in(tree) | strings_in(tree)
        compiles = compiles or any(name == "compile" for _, name in _method_calls(tree))
    return compiles and _STRATEGY in named and not named & {LEGACY, "tf_keras"}


def _method_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls of methods in a module that imports Keras or TensorFlow, with their names, but not the calls of
    functions of imported modules, such as `re.compile`.
    """
    names = import_names(tree)
    if not {name.partition(".")[0] for name in names.values()} & {"keras", "tensorflow"}:
        return
    tops = {name.partition(".")[0] for name in names}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if dotted(node.func).partition(".")[0] not in tops:
            yield node, node.func.attr


def import_names(tree: ast.AST) -> dict[str, str]:
    """Map the names that a module gives to its imports to their full names: `hvd` to `horovod.tensorflow`.

    `import a.b` maps `a.b` to itself. Relative imports are left out.
    """
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr) -> str:
    """Return an expression's dotted name, such as `hvd.callbacks`.

    A start that is not a name becomes "": the result for `load().callbacks` is `.callbacks`.
    """
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return ".".join([node.id if isinstance(node, ast.Name) else "", *reversed(attributes)])


def _trap(name: str, names: dict[str, str]) -> str:
    """Return the name of the trap that a dotted name refers to, or "". `names` comes from `import_names`."""
    for known, meant in names.items():
        if f"{name}.".startswith(f"{known}."):
            return _TRAP_OF.get(meant + name[len(known) :], "")
    return ""


def modules(directory: Path, script: Path, *, named: bool = False) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the script and all modules of the directory that it imports, directly or indirectly, each with its AST.

    With `named`, also follow names of Python files in strings, which the program may start or execute.

    Files that cannot be parsed are skipped. The script's own syntax is checked elsewhere, and a module may never be
    imported.
    """
    waiting, seen = [script], {script}
    while waiting:
        path = waiting.pop()
        if (tree := parsed(path)) is None:
            continue
        yield path, tree
        for place in imported(tree, directory, path, named=named):
            if place not in seen and place.is_file():
                seen.add(place)
                waiting.append(place)


def imported(tree: ast.AST, directory: Path, path: Path, *, named: bool) -> Iterator[Path]:
    """Yield the paths where the modules imported by the file `path` may be. The paths need not exist. `tree` is the
    file's AST.

    Constants passed to `import_module` count too. With `named`, names of Python files in strings count as well.
    """
    roots = (directory, path.parent, directory / "src")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            level = node.level if isinstance(node, ast.ImportFrom) else 0
            package = path.parents[level - 1 : level] if level else roots
            for module in imports(node):
                yield from _places(module, *package)
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("import_module") and node.args:
            if isinstance(node.args[0], ast.Constant):
                yield from _places(str(node.args[0].value), *roots)
        elif named and isinstance(node, ast.Constant) and _is_script(node.value):
            yield from (root / node.value for root in roots)


def _is_script(value: object) -> TypeGuard[str]:
    """Return whether a constant is a string that looks like the relative path of a Python file."""
    return isinstance(value, str) and re.fullmatch(r"(?!/)(?!.*\.\.)[\w./-]{1,200}\.py", value) is not None


def parsed(path: Path) -> ast.AST | None:
    """Return the AST of a Python file; None if it cannot be read or parsed."""
    try:
        return parsed_text(path.read_bytes())
    except OSError:
        return None


def parsed_text(source: str | bytes) -> ast.AST | None:
    """Return the AST of a Python text; None if it cannot be parsed. Python's warnings are suppressed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: an expression is too long
            return None


def is_guard(node: ast.AST) -> bool:
    """Return whether a statement is a `try` or `with` that handles failed imports inside of it."""
    if isinstance(node, ast.Try):
        return any(handler.type is None or names_in(handler.type) & _GUARDS for handler in node.handlers)
    return isinstance(node, ast.With) and any(names_in(item.context_expr) & _GUARDS for item in node.items)


def names_in(node: ast.AST, left_out: Collection[int] = ()) -> set[str]:
    """Return all names and attribute names in a part of a program, except nodes whose ids are in `left_out`."""
    walked = [each for each in ast.walk(node) if id(each) not in left_out]
    names = {each.id for each in walked if isinstance(each, ast.Name)}
    return names | {each.attr for each in walked if isinstance(each, ast.Attribute)}


def strings_in(node: ast.AST) -> set[str]:
    """Return all string constants in a part of a program."""
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def imports(tree: ast.AST, *, relative: bool = True) -> Iterator[str]:
    """Yield the dotted names that a module imports anywhere. Without `relative`, only absolute imports.

    `from a import b` yields `a` and `a.b`. Relative imports are yielded without their dots: `from . import b` yields ""
    and `b`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (relative or not node.level):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names)


def _places(module: str, *roots: Path) -> Iterator[Path]:
    """Yield the paths below each root where a module and its packages may be; nothing for an invalid name."""
    parts = module.split(".")
    for root in roots:
        if all(parts):
            yield root.joinpath(*parts).with_suffix(".py")
            yield from (root.joinpath(*parts[:count], "__init__.py") for count in range(1, len(parts) + 1))
