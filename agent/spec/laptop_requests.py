"""Requests from the laptop besides runs: a command on nodes, a notebook, a run's secrets."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Final

from agent.errors import SpecError, malformed
from agent.spec import untrusted_json
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, choose_hosts, parse_nodes, workers

BAD_REQUEST: Final = 2
"""Exit status of `agent.remote.fanout` for an invalid request."""
NOTEBOOK_PREFIX: Final = "deepcdk: "
"""Prefix of the lines that report the progress of `agent.remote.notebook`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command for `agent.remote.fanout`, and the nodes to run it on."""

    command: tuple[str, ...]
    """The program and its arguments. Bytes that are not UTF-8 are represented as lone surrogates."""
    nodes: int = 0
    """Run on this number of workers, the first by index; 0: on all workers."""
    master: bool = False
    """Run on the master only."""
    is_module: bool = False
    """Whether `command` is a pushed tree, a module in it, and arguments. The node then calls the module's `main`."""
    environment: tuple[tuple[str, str], ...] = ()
    """Additional environment variables. They appear on no command line."""
    as_rank: bool = False
    """Run as the ranks' user, on workers. Ranks can change the files that the command writes."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise SpecError("the command is empty")
        flags = (self.master, self.is_module, self.as_rank)
        if type(self.nodes) is not int or not all(isinstance(each, bool) for each in flags):
            raise SpecError("`nodes` must be a whole number; `master`, `is_module` and `as_rank` must be true or false")
        if self.master and self.as_rank:
            raise SpecError("as_rank is for workers: the master has no ranks")
        texts = (*self.command, *(word for pair in self.environment for word in pair))
        if not all(isinstance(text, str) for text in texts):
            raise SpecError("the words of the command, and the names and values of its variables, must be text")
        for name, _ in self.environment:
            if not name or "=" in name:
                raise SpecError(f"environment variable {name!r}: the name must not be empty or contain =")
        for text in texts:
            if "\0" in text:
                raise SpecError("a word or variable of the command contains a NUL, which cannot be passed to a program")
            if re.search("[\ud800-\udc7f\udd00-\udfff]", text):
                raise SpecError(f"{text!a}: contains a character that UTF-8 cannot encode")

    def to_line(self) -> bytes:
        """Return the request as one line of JSON, in ASCII, with a newline at its end."""
        return json.dumps(dataclasses.asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> RemoteCommand:
        """Parse the request from its line. Raises SpecError if it is invalid."""
        try:
            document = untrusted_json.parse(line)
            return cls(
                command=tuple(document["command"]),
                nodes=document["nodes"],
                master=document["master"],
                is_module=document["is_module"],
                as_rank=document["as_rank"],
                environment=tuple((name, value) for name, value in document["environment"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise SpecError(f"the laptop sent an invalid request: {malformed(error)}; repeat the command") from None

    def hosts(self, nodes_text: str, warn: Callable[[str], None]) -> tuple[str, ...]:
        """Return the names of the nodes to run on: the master, or workers.

        `nodes_text` is the content of the nodes file. `warn` receives a sentence for each invalid line in it. Raises
        SpecError if too few workers are ready, or none.
        """
        if self.master:
            return (MASTER_NAME,)
        nodes = parse_nodes(nodes_text, warn)
        found = choose_hosts(nodes, self.nodes) if self.nodes else workers(nodes)
        if not found:
            raise SpecError("no worker is ready; start some with `fab scale --nodes N`")
        return tuple(node.name for node in found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotebookRequest:
    """A notebook for `agent.remote.notebook`: its node, directories and port. It contains no secret."""

    node: str
    efs_mount: str
    """Directory of the shared file system for the notebook's files. Files elsewhere are lost with the node."""
    tree: str
    """Pushed directory with the requirements and their lock file."""
    port: int = 0
    """Port on the loopback interface of master and node; 0: any free port of the master."""
    horovod_wheelhouse: str = ""
    """Address of a wheelhouse that may contain Horovod's wheel (key `wheelhouse`); empty: the node builds it."""

    def to_json(self) -> str:
        """Return the request as one line of JSON, without a newline."""
        return json.dumps(dataclasses.asdict(self))


def secrets_command(verb: str, *run_ids: str) -> list[str]:
    """Build the command that stores or removes runs' secrets. It runs in a pushed tree.

    `verb` is keep (store on the master), take (store on a host) or drop (remove). To store secrets, the command reads
    them from standard input, as a JSON object of names and values.
    """
    return [NODE_PYTHON, "-m", "agent.remote.secret_files", verb, *run_ids]
