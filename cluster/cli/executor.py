"""Leave the words after `--` to the task that asks for them; fabric.yaml names this executor."""

from __future__ import annotations

from typing import Any

from fabric.executor import Executor
from invoke.exceptions import Exit


class WordsExecutor(Executor):  # type: ignore[misc]  # fabric has no types
    """Execute tasks as Fabric does, but for the words after `--`, which it would run on the hosts of -H."""

    def execute(self, *tasks: Any) -> Any:
        """Execute the tasks. Raises Exit where words are given that none of them takes."""
        if self.core is not None and self.core.remainder:
            named = [self.collection[task.name] for task in tasks]
            if not any(getattr(task, "takes_words", False) for task in named):
                raise Exit("deepcdk: words after -- are taken by `fab run` and `fab train` alone", code=1)
            self.core.remainder = ""
        return super().execute(*tasks)
