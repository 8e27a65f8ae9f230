"""A task of the command line: a function whose parameters are its flags, and whose errors end it with a message."""

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
from cluster.aws.client import explain
from cluster.cli import INTERRUPTED, INTERRUPTED_STATUS, drop_output
from cluster.cli.flags import REPEATED, call, flags_of, parse_run_id, whole
from cluster.errors import DeepcdkError, SystemRefusedError
from cluster.terminal.wrap import fitted
from stacks.config import ConfigError

Set = Annotated[tuple[str, ...], "override a value of context.cluster in cdk.json, as key=value; may be repeated"]
Key = Annotated[str, "private SSH key; default: the agent's and those in ~/.ssh"]
Json = Annotated[bool, "print JSON"]
Yes = Annotated[bool, "answer every question with yes"]
RunId = Annotated[str, "id of the run; default: the only live one, else the newest", parse_run_id]
FromBucket = Annotated[bool, "read the copy in the bucket, as is done where the cluster is gone"]
Port = Annotated[int, "port on this machine; default: any free one", whole(lowest=1, highest=65535)]
Notify = Annotated[
    tuple[str, ...],
    "shell command for the master when the run ends, fails, restarts, waits for nodes or is near a bound; "
    "it gets JSON; or topic: the alarms' topic of SNS, which sends mail to alarm_emails",
]
Queue = Annotated[bool, "where another run is live, wait for its end and those before; default: refuse"]
Browser = Annotated[bool, "open the browser, where there is a display"]


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

    def argspec(self, body: Callable[..., None]) -> inspect.Signature:
        """Return the flags as the signature that Invoke makes its arguments from."""
        empty = inspect.Parameter.empty
        return inspect.Signature(
            [
                inspect.Parameter(
                    flag.parameter,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=empty
                    if flag.kind == REPEATED
                    else flag.typed_default,  # Invoke would make it a tuple's flag.
                )
                for flag in self.flags
            ]
        )

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return Invoke's arguments. It takes each help out of `help`, which is filled here for each time."""
        self.help = {flag.parameter: flag.help for flag in self.flags}
        return super().get_arguments(ignore_unknown_help)

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Run the task. Turn its errors into a message and an exit status, here and nowhere else."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A file's name need not be UTF-8, and to print it must not end the task; stderr is so by itself.
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
            explained: DeepcdkError | None = explain(error)  # What no `aws_errors` has caught.
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

    `word`: the flag that a word without one stands for (`fab ssh worker3`). `takes_words`: those after `--` are the
    task's. Without `short_flags` no flag has one letter too: for each of many, or a prefix of two, it would mean
    nothing.
    """
    return lambda body: Task(body, word=word, takes_words=takes_words, short_flags=short_flags)
