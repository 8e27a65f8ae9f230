"""Find uses of Horovod and tf.distribute in a program that fail or train wrongly with Keras 3, before anything costs
money.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cluster.errors import DeepcdkError
from cluster.programs.python_ast import dotted, import_names, imports, modules, names_in, strings_in

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


def _trap(name: str, names: dict[str, str]) -> str:
    """Return the name of the trap that a dotted name refers to, or "". `names` comes from `import_names`."""
    for known, meant in names.items():
        if f"{name}.".startswith(f"{known}."):
            return _TRAP_OF.get(meant + name[len(known) :], "")
    return ""
