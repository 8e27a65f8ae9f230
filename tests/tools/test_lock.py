"""Resolving the lock files."""

from __future__ import annotations

from pathlib import Path

from tools.lock import compile_command, flattened, with_tensorflow


def test_other_kind_of_node_gets_other_tensorflow_of_same_version() -> None:
    node = ["tensorflow-cpu==2.21.0", "keras"]
    assert with_tensorflow(node, "tensorflow[and-cuda]") == ["tensorflow[and-cuda]==2.21.0", "keras"]
    assert with_tensorflow(node, "tensorflow") == ["tensorflow==2.21.0", "keras"]


def test_group_has_requirements_of_included_groups() -> None:
    groups: dict[str, object] = {"a": ["x", {"include-group": "b"}], "b": [{"include-group": "c"}, "y"], "c": ["z"]}
    assert flattened(groups, "a") == ["x", "z", "y"]


def test_lock_files_have_hashes_and_no_index() -> None:
    command = compile_command("uv", ["--group=node"], Path("out.txt"), Path("dev.txt"))
    assert command[:4] == ["uv", "pip", "compile", "--group=node"]
    assert {"--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--universal"} < set(command)
    assert command[-4:] == ["--constraint", "dev.txt", "--output-file", "out.txt"]
    assert "--constraint" not in compile_command("uv", ["-"], Path("out.txt"), None)
