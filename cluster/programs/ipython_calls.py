"""Find calls of IPython in a program that was converted from a notebook. They fail in a plain Python."""

from __future__ import annotations

import ast
from typing import Final

from cluster.programs.python_ast import parsed_text

_IPYTHON: Final = "get_ipython"
_MAGICS: Final = ("system", "getoutput", "run_line_magic", "run_cell_magic", "magic")
"""IPython functions into which nbconvert translates `!` and `%` commands."""


def line_of_ipython_call(text: bytes) -> int:
    """Return the number of the first top-level line that calls IPython, as nbconvert writes `!pip` and `%cd`; 0 if
    there is none.

    Also 0 if the program defines or looks up get_ipython itself, if it may do so, or if the text is not valid Python.
    """
    if b"get_ipython()." not in text:
        return 0
    tree = parsed_text(text)
    if not isinstance(tree, ast.Module) or any(map(_gives_ipython, ast.walk(tree))):
        return 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            return 0  # it may define get_ipython
        call = node.value if isinstance(node, ast.Expr | ast.Assign) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _MAGICS:
            made = call.func.value
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == _IPYTHON:
                return node.lineno
    return 0


def _gives_ipython(node: ast.AST) -> bool:
    """Return whether a part of a program defines or looks up get_ipython itself.

    An import of IPython's own function does not count, because that function returns None in a script.
    """
    if isinstance(node, ast.ImportFrom):
        is_own = (node.module or "").partition(".")[0] != "IPython"
        return any((name.asname or name.name) == _IPYTHON and is_own for name in node.names)
    if isinstance(node, ast.Name | ast.Attribute):
        name = node.id if isinstance(node, ast.Name) else node.attr
        return name == _IPYTHON and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Constant):
        return node.value == _IPYTHON
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == _IPYTHON
