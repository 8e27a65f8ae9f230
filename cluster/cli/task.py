"""A task of the command line: a function with its parameters as flags. Errors are printed as messages."""

from __future__ import annotations

import inspect
import io
import sys
from collections.abc import Callable
from typing import Annotated, Any

import invoke.tasks
from invoke.exceptions import Exit
from invoke.parser.argument import Argument

from agent.errors import SpecError
from agent.spec.horovod import KnobError
from cluster.aws.errors import explain
from cluster.cli import INTERRUPTED, INTERRUPTED_STATUS, drop_output
from cluster.cli.flags import REPEATED, call, flags_of, parse_run_id, whole
from cluster.errors import DeepcdkError, SystemRefusedError
from cluster.terminal.wrap import fitted, with_command
from stacks.config import ConfigError

Set = Annotated[tuple[str, ...], "override a key of context.cluster in cdk.json, as key=value; may be repeated"]
Key = Annotated[str, "file of a private SSH key; default: the keys of the SSH agent and in ~/.ssh"]
Json = Annotated[bool, "print JSON"]
Yes = Annotated[bool, "answer every question with yes"]
RunId = Annotated[str, "id of the run; default: the only live one, else the newest", parse_run_id]
FromBucket = Annotated[bool, "read the copy in the bucket; default: only if the cluster is gone"]
Port = Annotated[int, "port on this machine; default: any free port", whole(lowest=1, highest=65535)]
Notify = Annotated[
    tuple[str, ...],
    "shell command that the master starts when the run ends, fails, restarts, waits for nodes or is near a limit. It "
    "gets JSON on stdin. Or topic: the SNS topic of the alarms, which sends mail to alarm_emails. Or none",
]
Queue = Annotated[bool, "if another run is live, wait in the queue; default: fail"]
Browser = Annotated[bool, "open the browser, if there is a display"]


class Task(invoke.tasks.Task[Callable[..., None]]):
    """An Invoke task with the flags that its function declares."""

    def __init__(self, body: Callable[..., None], *, word: str, takes_words: bool, short_flags: bool) -> None:
        self.flags = tuple(flags_of(body))
        self.word, self.takes_words = word, takes_words
        super().__init__(
            body,
            name=body.__name__.replace("_", "-"),
            positional=(),
            iterable=[flag.parameter for flag in self.flags if flag.kind == REPEATED],
            auto_shortflags=short_flags,
        )
        self.__doc__ = with_command(self.__doc__ or "")

    def argspec(self, body: Callable[..., None]) -> inspect.Signature:
        """Return the flags as a signature, from which Invoke creates its arguments."""
        empty = inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(
                    flag.parameter,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=empty
                    if flag.kind == REPEATED
                    else flag.typed_default,  # Invoke would make it a flag for a tuple
                )
                for flag in self.flags
            ]
        )

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return Invoke's arguments. Invoke removes each text from `help`, so it is filled again for each call."""
        self.help = {flag.parameter: with_command(flag.described) for flag in self.flags}
        return super().get_arguments(ignore_unknown_help)

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Run the task.

        Raises Exit with a message and an exit status for errors of deepcdk, AWS and the operating system, and for
        Ctrl-C. Other errors are programming errors, and are raised unchanged.
        """
        if isinstance(sys.stdout, io.TextIOWrapper):
            # File names need not be UTF-8, and printing one must not stop the task. stderr has this setting by default.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            call(self.body, {flag.parameter: flag.parse(values[flag.parameter]) for flag in self.flags})
        except DeepcdkError as error:
            raise Exit(fitted(f"deepcdk: {error}", sys.stderr), code=error.exit_status) from None
        except (ConfigError, KnobError, SpecError) as error:
            raise Exit(fitted(f"deepcdk: {error}", sys.stderr), code=1) from None
        except KeyboardInterrupt:
            raise Exit(INTERRUPTED, code=INTERRUPTED_STATUS) from None
        except BrokenPipeError:
            drop_output()
            raise Exit(code=1) from None
        except Exception as error:
            explained: DeepcdkError | None = explain(error)  # errors that `aws_errors` has not caught
            if explained is None and isinstance(error, OSError) and error.errno:
                drop_output()
                explained = SystemRefusedError(error)
            if explained is None:
                raise
            raise Exit(fitted(f"deepcdk: {explained}", sys.stderr), code=1) from None


def task(
    *, word: str = "", takes_words: bool = False, short_flags: bool = True
) -> Callable[[Callable[..., None]], Task]:
    """Return a decorator that makes a function a task.

    `word` is the flag that receives a word without a flag (`fab ssh worker3`). `takes_words` permits words after `--`,
    which the task reads from sys.argv with `words_after_dashes`. `short_flags=False` disables one-letter flags, which
    would be ambiguous in a task with many flags or with similar names.
    """
    return lambda body: Task(body, word=word, takes_words=takes_words, short_flags=short_flags)
