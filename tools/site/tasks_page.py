"""Write the reference of the tasks: what `fab --help TASK` says of each, with every flag."""

from __future__ import annotations

import inspect
import re
from typing import Final

from invoke.parser.context import ParserContext

from cluster.cli import loader
from cluster.cli.task import Task
from tools.site.tables import code, rows

PAGE: Final = "docs/reference/tasks.md"
TITLE: Final = "Tasks and their flags"
HEAD: Final = f"""# {TITLE}

Every task of `fab`, as `fab --help TASK` explains it. [The tasks](../tasks.md) tells how they behave and what they ask;
[Keys of cdk.json](cdk-json.md) lists what `--set` takes. This page is written from `cluster/tasks/`.
"""


def page() -> str:
    """Return the whole page."""
    tasks = loader.collection().tasks
    return HEAD + "".join(_section(tasks[name]) for name in sorted(tasks))


def _section(task: Task) -> str:
    # The parts of a docstring are apart by an empty line; an example is one of them.
    text = re.sub(r"(?m)^Example: ", "    ", inspect.cleandoc(task.__doc__ or ""))
    arguments = ParserContext(name=task.name, args=task.get_arguments())
    flags = [(code(spelling), (what or "").replace("\n", " ")) for spelling, what in arguments.help_tuples()]
    return f"\n## fab {task.name}\n\n{text}\n{_word(task)}\n" + rows(("flag", "what it does"), flags)


def _word(task: Task) -> str:
    return f"\nA word without a flag is `{task.word}`.\n" if task.word else ""
