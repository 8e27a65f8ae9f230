"""Catch silent bugs of Horovod with Keras 3 in the user's program, and import its framework faster.

Python imports this module when a program starts, because `agent.launch.rank` puts its directory first in PYTHONPATH.

- TensorFlow and PyTorch are imported without garbage collection, which takes 2.1 s of CPU time instead of 2.6 s for
  TensorFlow 2.21, and 2.2 s instead of 2.5 s for PyTorch 2.13.
- With Keras 3, `hvd.DistributedOptimizer` averages nothing, without an error, and the ranks drift apart. This module
  makes it an error.
- If a program then fails with a known error caused by Keras 3, the fix is printed after the traceback.
- With TF_USE_LEGACY_KERAS=1, `import keras` imports Keras 2, like `tf.keras`. Horovod's callbacks use `import keras`.
"""

from __future__ import annotations

import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType, TracebackType
from typing import Any

REMEDY = (
    "  do: launch it with `fab train --keras 2`, so that tf.keras and keras are Keras 2 (the package tf-keras);\n"
    "      or average the gradients in the program, over the TensorFlow variables in Keras's variables:\n"
    "      grads = hvd.DistributedGradientTape(tape).gradient(loss, [v.value for v in model.trainable_variables])"
)
SILENT = (
    "With Keras 3, hvd.DistributedOptimizer silently averages nothing, so that the ranks' weights diverge.\n"
    "  The run was stopped"
)
FAILURES = (
    (
        "has no attribute 'ref'",
        "hvd.DistributedGradientTape needs TensorFlow variables, but got variables of Keras 3",
    ),
    ("horovod/_keras/", "Horovod's Keras support requires Keras 2"),
    ("horovod/tensorflow/keras/", "Horovod's Keras support requires Keras 2"),
    ("horovod/tensorflow/elastic", "Horovod's elastic state for Keras requires Keras 2"),
    ("'experimental_run_tf_function'", "compile() of Keras 3 has no argument experimental_run_tf_function"),
    ("opt.variables()", "in Keras 3, an optimizer's `variables` is a property, not a method"),
    ("optimizer.variables()", "in Keras 3, an optimizer's `variables` is a property, not a method"),
)
"""Substrings of an uncaught error with its traceback, and their meaning."""
FRAMEWORKS = ("tensorflow", "torch")
MAX_OBJECTS = 200_000
"""With more objects than this, the garbage collection of a program is not changed."""


class KerasTrapError(RuntimeError):
    """Report a use of Horovod that would silently train wrongly."""


class Alias(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import `keras` and its submodules from `tf_keras`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for keras and its submodules; None for other modules."""
        mine = name == "keras" or name.startswith("keras.")
        return importlib.machinery.ModuleSpec(name, self) if mine else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module of Keras 2 under this name."""
        return importlib.import_module(f"tf_{spec.name}")

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module was executed when it was imported under its own name."""


class Watch(importlib.abc.MetaPathFinder):
    """Execute one module in another way when it is imported."""

    def __init__(self, name: str, execute: Callable[[ModuleType, Callable[[ModuleType], None]], None]) -> None:
        """Register `execute`. It is called with the module `name` and with the function that executes it."""
        self._name, self._execute = name, execute

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module's normal spec, with a loader that calls `execute`; None for other modules."""
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = lambda module: self._execute(module, execute)  # type: ignore[method-assign]  # only for this loader
        return spec


def has_keras_2() -> bool:
    """Return whether the package `keras` is imported and is Keras 2, as with TensorFlow 2.15."""
    return str(getattr(sys.modules.get("keras"), "__version__", "")).startswith("2.")


def is_keras_3(optimizer: object) -> bool:
    """Return whether an optimizer belongs to Keras 3, by the modules of its classes."""
    return not has_keras_2() and any(kind.__module__.split(".")[0] == "keras" for kind in type(optimizer).__mro__)


def without_collection(module: ModuleType, execute: Callable[[ModuleType], None]) -> None:
    """Execute a module without garbage collection, and leave all objects out of later collections.

    A module creates many objects and no garbage. Collection stays disabled if the program has disabled it. If the
    program has more than MAX_OBJECTS objects, or another framework, some may become garbage later, so nothing is
    changed.
    """
    has_other = any(name in sys.modules for name in FRAMEWORKS if name != module.__name__)
    if has_other or not gc.isenabled() or len(gc.get_objects()) > MAX_OBJECTS:
        execute(module)
        return
    gc.disable()
    try:
        execute(module)
        gc.freeze()
    finally:
        gc.enable()


def refuse_keras_3(module: Any, execute: Callable[[ModuleType], None]) -> None:
    """Execute the module horovod._keras, and let wrapping an optimizer of Keras 3 raise KerasTrapError."""
    execute(module)
    create = module.create_distributed_optimizer

    def create_distributed_optimizer(keras: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if is_keras_3(optimizer):
            raise KerasTrapError(f"{SILENT}\n{REMEDY}")
        return create(keras, optimizer, *args, **kwargs)

    module.create_distributed_optimizer = create_distributed_optimizer


def explain(text: str) -> str:
    """Return the meaning of an uncaught error that is a known error caused by Keras 3; "" for other errors.

    `text` is the error with its traceback.
    """
    if "KerasTrapError" in text:
        return ""
    return next((meaning for sign, meaning in FAILURES if sign in text), "")


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught error as Python does, followed by the fix if the error is a known one caused by Keras 3."""
    sys.__excepthook__(kind, error, trace)
    meaning = explain("".join(traceback.format_exception(kind, error, trace)))
    if meaning and not has_keras_2() and issubclass(kind, AttributeError | TypeError | ValueError | ImportError):
        print(f"deepcdk: {meaning}\n{REMEDY}", file=sys.stderr, flush=True)


def install(legacy: bool) -> None:
    """Install the hooks for Keras. `legacy`: whether the program uses Keras 2.

    With `legacy`, `import keras` imports tf_keras, if that is installed. Otherwise, wrapping an optimizer of Keras 3
    becomes an error, and uncaught errors are explained.
    """
    if legacy:
        if importlib.machinery.PathFinder.find_spec("tf_keras") is not None:
            sys.meta_path.insert(0, Alias())
        return
    sys.meta_path.insert(0, Watch("horovod._keras", refuse_keras_3))
    sys.excepthook = report


if __name__ == "sitecustomize":
    is_legacy = os.environ.get("TF_USE_LEGACY_KERAS", "") in ("1", "true", "True")
    if "HOROVOD_RANK" in os.environ or (is_legacy and "RANK" in os.environ):
        install(is_legacy)
    if "HOROVOD_RANK" in os.environ or "RANK" in os.environ:
        sys.meta_path[:0] = [Watch(name, without_collection) for name in FRAMEWORKS]
