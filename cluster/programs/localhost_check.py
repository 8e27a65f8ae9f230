"""Detect code with which each node connects only to itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Final

from cluster.programs.python_ast import dotted, names_in, strings_in

LOCALHOST: Final = re.compile(r"(?:localhost|127\.0\.0\.1|\[?::1\]?)(?::\d+)?")
"""An address of the own node, perhaps with a port."""
OWN_ADDRESS: Final = re.compile(
    r"tcp://(?:localhost|127\.0\.0\.1|\[?::1\]?)(?:[:/]|$)|file://(?:localhost)?/(?:var/)?(?:tmp|dev/shm)/"
)
"""Meeting places on the own node. Each node has its own /tmp."""
_MEETING: Final = ("MASTER_ADDR", "TF_CONFIG", "JAX_COORDINATOR_ADDRESS")
ENVIRONMENT_READERS: Final = {"environ", "getenv"}
"""Names with which a program reads environment variables."""


def own_addresses(tree: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """Yield each environment variable that a module sets so that other nodes are excluded: its value's AST node, name.

    That is a local address for MASTER_ADDR, TF_CONFIG or JAX_COORDINATOR_ADDRESS, or a WORLD_SIZE of 1.
    """
    values = dict[str, list[ast.AST]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    for node in ast.walk(tree):
        for owner, name, value in _settings_of(node):
            if dotted(owner).endswith("environ") and (
                (name in _MEETING and _is_own(value, values))
                or (name == "WORLD_SIZE" and isinstance(value, ast.Constant) and str(value.value) == "1")
            ):
                yield value, name


def reason_call_is_alone(call: ast.Call) -> str:
    """Return how a call that creates a process group excludes other nodes, as the end of a sentence about the call.

    Return "" if its arguments show no problem.
    """
    given = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
    first = [word.value for word in call.args[:2] if isinstance(word, ast.Constant)]
    places = [*first, given.get("init_method")]
    if dotted(call.func).rpartition(".")[2] == "initialize":  # JAX's address has no scheme
        named = (*first[:1], given.get("coordinator_address"))
        places = [f"tcp://{place}" for place in named if isinstance(place, str)]
    if any(OWN_ADDRESS.match(str(place)) for place in places):
        return "connects to an address of the node itself"
    return "joins only one rank (world_size=1)" if 1 in (given.get("world_size"), given.get("num_processes")) else ""


def _settings_of(node: ast.AST) -> Iterator[tuple[ast.expr, str, ast.expr]]:
    """Yield the dictionary, key and value that a statement `d["key"] = value` or a call `d.update` sets; nothing for
    other nodes.
    """
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
                yield target.value, str(target.slice.value), node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "update":
        for word in node.keywords:
            yield node.func.value, word.arg or "", word.value
        for given in node.args:
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant):
                        yield node.func.value, str(key.value), value


def _is_own(value: ast.AST, values: Mapping[str, list[ast.AST]]) -> bool:
    """Return whether a value is certainly a local address. `values` maps names to the values assigned to them.

    Returns False if the value may come from a condition or from the environment.
    """
    owners = {id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute)}
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name) and id(node) not in owners}
    parts = [value, *(each for name in names for each in values.get(name, ()))]
    walked = [node for part in parts for node in ast.walk(part)]
    if any(isinstance(node, ast.IfExp | ast.BoolOp) for node in walked) or any(
        names_in(p) & ENVIRONMENT_READERS for p in parts
    ):
        return False
    return any(LOCALHOST.fullmatch(text) for part in parts for text in strings_in(part))
