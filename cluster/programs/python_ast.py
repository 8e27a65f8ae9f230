"""Read Python files as ASTs: their modules, imports and names."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, TypeGuard

_GUARDS: Final = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


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
    """Yield each path where a module that the file `path` imports may be. The paths need not exist.

    `tree` is the file's AST, `directory` the program's directory. Constants passed to `import_module` count too. With
    `named`, names of Python files in strings count as well.
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
