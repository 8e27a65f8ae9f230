"""The tasks: `fab up`, `fab train --nodes 2`, `fab fetch`, `fab down`.

`fab --list` lists them, `fab --help TASK` explains one. Their bodies lie in `cluster.tasks`, a noun each.
"""

from __future__ import annotations

from fabric.main import program
from invoke.exceptions import Exit

from cluster.cli import interrupt

# Fabric has parsed its own flags by now, and will parse the tasks' words next.
core = getattr(program, "core", None)
if core:
    interrupt.end_at_once()

from cluster.cli import loader, positionals, suggestions  # noqa: E402  # takes its time, in which Ctrl-C may come

words = tuple(core.unparsed) if core else ()

ns = loader.collection(words)

if core:
    contexts = positionals.contexts_of(ns)
    core.unparsed = positionals.with_flags(words, contexts)
    if suggestions.complaint(core.unparsed, contexts, core[0].flags):
        contexts = positionals.contexts_of(loader.collection())  # The nearest word is one of all tasks.
        raise Exit(suggestions.complaint(positionals.with_flags(words, contexts), contexts, core[0].flags), code=1)
