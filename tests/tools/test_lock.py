"""Facts about resolving the lock files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.lock import GROUPS, compile_command, for_gpu, requirements

PROJECT: dict[str, Any] = {
    "project": {"dependencies": ["fabric==3.2.3"]},
    "dependency-groups": {"node": ["tensorflow-cpu==2.21.0", "keras"], "localcloud": ["moto"], "dev": ["ruff"]},
}


def test_the_developers_lock_has_the_project_and_all_groups() -> None:
    assert requirements(PROJECT, GROUPS) == ["fabric==3.2.3", "tensorflow-cpu==2.21.0", "keras", "moto", "ruff"]


def test_the_nodes_lock_has_the_group_node_alone() -> None:
    assert requirements(PROJECT, ["node"]) == ["tensorflow-cpu==2.21.0", "keras"]


def test_a_gpu_node_gets_tensorflow_with_cuda_in_the_same_version() -> None:
    assert for_gpu(["tensorflow-cpu==2.21.0", "keras"]) == ["tensorflow[and-cuda]==2.21.0", "keras"]


def test_lock_files_have_hashes_and_name_no_index() -> None:
    command = compile_command("uv", Path("out.txt"), Path("dev.txt"))
    assert {"--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--universal"} < set(command)
    assert command[-4:] == ["--constraint", "dev.txt", "--output-file", "out.txt"]
    assert "--constraint" not in compile_command("uv", Path("out.txt"), None)
