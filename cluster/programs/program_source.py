"""The source of a user's program: a script, and the modules of its directory that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def modules(directory: Path, script: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Yield the script and all modules that it imports, over others too, each with its syntax.

    What cannot be parsed is left out: the script's own syntax is checked elsewhere, and a module may never be imported.
    """
    waiting, seen = [script], {script}
    while waiting:
        path = waiting.pop()
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            continue
        yield path, tree
        for module in imports(tree):
            for place in _places(module, directory, path.parent):
                if place.is_file() and place not in seen:
                    seen.add(place)
                    waiting.append(place)


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" if node.module else alias.name for alias in node.names)


def _places(module: str, *roots: Path) -> Iterator[Path]:
    parts = module.split(".")
    for root in roots:
        if all(parts):
            yield root.joinpath(*parts).with_suffix(".py")
            yield root.joinpath(*parts, "__init__.py")
