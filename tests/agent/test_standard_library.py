"""The agent's imports: a bare node with only Python can import every module."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
IN_THE_RUNTIME = {
    "agent.environment.custom_op": {"tensorflow"},
    "agent.environment.horovod_selftest": {"horovod", "keras", "tensorflow"},
    "agent.launch.horovodrun": {"horovod"},
    "agent.launch.mpirun": {"horovod"},
    "agent.preflight.allreduce": {"horovod", "tensorflow"},
}
"""Imports inside functions that only the runtime's Python calls."""
IMPORT_ALL = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    importlib.import_module(name)
print(*sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names))
"""


def modules() -> dict[str, Path]:
    """Return the agent's modules by name, without the hooks of user programs, which are not a package."""
    paths = [path for path in (PROJECT / "agent").rglob("*.py") if "program_hooks" not in path.parts]
    return {".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path) -> Iterator[str]:
    """Yield the top-level name of each import of a module, including those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_every_module_is_imported_by_a_python_without_site_packages() -> None:
    names = modules()
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(PROJECT), *names],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) - {"__main__", "__mp_main__"} == {"agent"}  # __mp_main__: of multiprocessing
    assert len(names) > 50


def test_imports_in_functions_are_standard_library_except_in_the_runtime() -> None:
    foreign = {name: set(imported(path)) - sys.stdlib_module_names - {"agent"} for name, path in modules().items()}
    assert {name: found for name, found in foreign.items() if found} == IN_THE_RUNTIME
