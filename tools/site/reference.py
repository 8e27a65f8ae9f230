"""Generate the reference pages of the site from the code: keys of cdk.json, tasks and flags, recipes."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from invoke.parser.context import ParserContext

from cluster.cli import task_modules
from cluster.cli.task import Task
from cluster.runs import recipe_tables
from payload.recipes import RECIPES, Recipe
from stacks.config import ClusterConfig

KEYS: Final = """# Keys of cdk.json

Every key of `context.cluster` in `cdk.json`, with its default. `--set key=value` overrides one for one command. An
unknown key is rejected with the nearest known one. Rules that bind several keys are in
[Infrastructure](../infrastructure.md#checked-before-any-spend). This page is written from `stacks/config_keys/`.
"""
TASKS: Final = """# Tasks and their flags

Every task of `fab`, as `fab --help TASK` explains it. [The tasks](../tasks.md) explains how they behave and what they
ask; [Keys of cdk.json](cdk-json.md) lists what `--set` takes. This page is written from `cluster/tasks/`.
"""
RECIPES_HEAD: Final = """# Recipes and their settings

Every recipe, as `fab recipes NAME` shows it: facts, the settings that it changes, and its variants. The variant for the
number of ranks is used. All other settings have [their defaults](../settings.md). [Training](../training.md) explains
how they are used. This page is written from `payload/recipes/`.
"""
TYPES: Final = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "tuple[str, ...]": "list"}


def reference_pages() -> dict[str, str]:
    """Return the text of each page by its path relative to the repository."""
    tasks = task_modules.collection().tasks
    return {
        "docs/reference/cdk-json.md": KEYS + "".join(_keys(group) for group in _groups()),
        "docs/reference/tasks.md": TASKS + "".join(_task(tasks[name]) for name in sorted(tasks)),
        "docs/reference/recipes.md": RECIPES_HEAD + "".join(part for recipe in RECIPES for part in _recipe(recipe)),
    }


def code(text: str) -> str:
    """Format a text as inline code; an empty text stays empty."""
    return f"`{text}`" if text else ""


def rows(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    """Format a table as Markdown. Bars in cells are escaped."""
    lines = [columns, ["---"] * len(columns), *cells]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _groups() -> Iterator[type]:
    """Yield the classes that declare keys, starting with ClusterConfig."""
    yield from (each for each in ClusterConfig.__mro__ if inspect.get_annotations(each))


def _documented(group: type) -> Mapping[str, str]:
    """Return the docstring of each field of a class."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    statements = body.body if isinstance(body, ast.ClassDef) else []
    found = {}
    for field, text in itertools.pairwise(statements):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ")
    return found


def _keys(group: Any) -> str:
    texts = _documented(group)
    fields = [field for field in dataclasses.fields(group) if field.name in inspect.get_annotations(group)]
    cells = [
        (code(field.name), TYPES[str(field.type)], code(json.dumps(field.default)), texts[field.name])
        for field in fields
    ]
    return f"\n## {_title(group)}\n\n" + rows(("key", "type", "default", "what it is"), cells)


def _title(group: type) -> str:
    """Return the title of a class of keys, taken from its docstring."""
    if group is ClusterConfig:
        return "The cluster itself"
    subject = (group.__doc__ or "").split(".")[0].strip().removeprefix("Keys of ")
    return subject[0].upper() + subject[1:]


def _task(task: Task) -> str:
    # Parts of a docstring are separated by an empty line. An example is one part.
    text = re.sub(r"(?m)^Example: ", "    ", inspect.cleandoc(task.__doc__ or ""))
    arguments = ParserContext(name=task.name, args=task.get_arguments())
    flags = [(code(spelling), (what or "").replace("\n", " ")) for spelling, what in arguments.help_tuples()]
    return f"\n## fab {task.name}\n\n{text}\n{_word(task)}\n" + rows(("flag", "what it does"), flags)


def _word(task: Task) -> str:
    return f"\nA word without a flag is `{task.word}`.\n" if task.word else ""


def _recipe(recipe: Recipe) -> Iterator[str]:
    facts, settings, *variants = recipe_tables.tables(recipe, None, everything=False)
    yield f"\n## {recipe.name}\n\n{recipe.summary[0].upper()}{recipe.summary[1:]}.\n\n"
    yield rows(("fact", ""), [(name, code(value) if name == "run" else value) for name, value in facts.rows])
    if settings.rows:
        cells = [(*map(code, row[:-1]), row[-1]) for row in settings.rows]
        yield "\n" + rows(("flag", "value", "default", "what it is"), cells)
    for variant in variants:
        pairs = [(code(name), code(value)) if name.startswith("--") else (name, value) for name, value in variant.rows]
        yield f"\n### {recipe.name}, {variant.title.removeprefix('--')}\n\n" + rows(("fact or flag", "value"), pairs)
