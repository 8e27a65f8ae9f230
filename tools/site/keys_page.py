"""Write the reference of cdk.json: every key of context.cluster from its declaration in stacks/config_keys."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from stacks.config import ClusterConfig
from tools.site.tables import code, rows

PAGE: Final = "docs/reference/cdk-json.md"
TITLE: Final = "Keys of cdk.json"
HEAD: Final = f"""# {TITLE}

Every key of `context.cluster` in `cdk.json`, with its default. `--set key=value` overrides one for one command. An
unknown key is refused with the nearest known one. Rules that bind several keys are in
[Infrastructure](../infrastructure.md#checked-before-any-spend). This page is written from `stacks/config_keys/`.
"""
TYPES: Final = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "tuple[str, ...]": "list"}


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(_section(group) for group in groups())


def groups() -> Iterator[type]:
    """Yield the classes that declare keys, ClusterConfig's own first."""
    yield from (each for each in ClusterConfig.__mro__ if inspect.get_annotations(each))


def documented(group: type) -> Mapping[str, str]:
    """Return what the docstrings below a class's fields say, by field."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    statements = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for field, text in itertools.pairwise(statements):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
    return found


def _section(group: Any) -> str:
    texts = documented(group)
    fields = [field for field in dataclasses.fields(group) if field.name in inspect.get_annotations(group)]
    cells = [
        (code(field.name), TYPES[str(field.type)], code(json.dumps(field.default)), texts[field.name])
        for field in fields
    ]
    return f"\n## {_title(group)}\n\n" + rows(("key", "type", "default", "what it is"), cells)


def _title(group: type) -> str:
    """Return the subject of a class of keys, which its docstring begins with."""
    if group is ClusterConfig:
        return "The cluster itself"
    subject = (group.__doc__ or "").split(".")[0].strip().removeprefix("Keys of ")
    return subject[0].upper() + subject[1:]
