"""What the laptop asks of the agent besides runs: a command on nodes, a notebook, a run's secrets stored."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Final

from agent.errors import SpecError
from agent.spec import json_text
from agent.spec.nodes import MASTER_NAME, NODE_PYTHON, choose_hosts, parse_nodes, workers

BAD_REQUEST: Final = 2
"""Exit status of `agent.remote.fanout` for a command that cannot be run."""
NOTEBOOK_PREFIX: Final = "deepcdk: "
"""Begins each line in which `agent.remote.notebook` reports its progress."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RemoteCommand:
    """A command for `agent.remote.fanout`: what is to run, and on which nodes."""

    command: tuple[str, ...]
    """The words, as they reach the program; bytes that are not UTF-8 stand as lone surrogates."""
    nodes: int = 0
    """On the first so many workers; 0: on all of them."""
    master: bool = False
    """On the master alone."""
    is_module: bool = False
    """The words are a pushed tree, a module of it, and arguments for its `main`, which the node's side calls itself."""
    environment: tuple[tuple[str, str], ...] = ()
    """Further variables of the command. They show on no command line."""
    as_rank: bool = False
    """As the user for ranks, on workers: what it writes is the ranks' to change."""

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise SpecError("no command is given")
        flags = (self.master, self.is_module, self.as_rank)
        if type(self.nodes) is not int or not all(isinstance(each, bool) for each in flags):
            raise SpecError("nodes must be a whole number; master, is_module and as_rank true or false")
        if self.master and self.as_rank:
            raise SpecError("as_rank is for workers: the master has no ranks")
        texts = (*self.command, *(word for pair in self.environment for word in pair))
        if not all(isinstance(text, str) for text in texts):
            raise SpecError("words, and names and values of variables, must be text")
        for name, _ in self.environment:
            if not name or "=" in name:
                raise SpecError(f"environment {name!r}: not a variable's name")
        for text in texts:
            if "\0" in text:
                raise SpecError("a word holds a NUL, which no program can be given")
            if re.search("[\ud800-\udc7f\udd00-\udfff]", text):
                raise SpecError(f"{text!a}: neither text nor bytes")

    def to_line(self) -> bytes:
        """Return the request as one line of JSON, in ASCII."""
        return json.dumps(dataclasses.asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> RemoteCommand:
        """Build the request from its line. Raises SpecError for anything that is not one."""
        try:
            document = json_text.parse(line)
            return cls(
                command=tuple(document["command"]),
                nodes=document["nodes"],
                master=document["master"],
                is_module=document["is_module"],
                as_rank=document["as_rank"],
                environment=tuple((name, value) for name, value in document["environment"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            raise SpecError(f"not a request: {error}") from None

    def hosts(self, nodes_text: str, warn: Callable[[str], None]) -> tuple[str, ...]:
        """Return the names of the nodes on which it is to run. Raises SpecError where they are not there.

        `warn` gets a sentence for each node that the text has against a rule.
        """
        if self.master:
            return (MASTER_NAME,)
        nodes = parse_nodes(nodes_text, warn)
        found = choose_hosts(nodes, self.nodes) if self.nodes else workers(nodes)
        if not found:
            raise SpecError("no worker is ready")
        return tuple(node.name for node in found)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NotebookRequest:
    """A notebook for `agent.remote.notebook`: where it is to run, and with what. It holds no secret."""

    node: str
    efs_mount: str
    """Where the notebook's files lie: what is on no shared file system goes with the node."""
    program: str = ""
    """Directory of the requirements; empty: JupyterLab alone, from the nodes' package index."""
    requirements: str = ""
    port: int = 0
    """On the loopback of master and node; 0: any that is free on the master."""

    def to_json(self) -> str:
        """Return the request as one line."""
        return json.dumps(dataclasses.asdict(self))


def secrets_command(verb: str, run_id: str) -> list[str]:
    """Build the command that stores or removes a run's secrets on a node: `keep`, `take` or `drop`."""
    return [NODE_PYTHON, "-m", "agent.remote.secret_files", verb, run_id]
