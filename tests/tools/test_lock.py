"""Facts about resolving the lock files."""

from __future__ import annotations

from pathlib import Path

from tools.lock import compile_command, for_gpu


def test_a_gpu_node_gets_tensorflow_with_cuda_in_the_same_version() -> None:
    assert for_gpu(["tensorflow-cpu==2.21.0", "keras"]) == ["tensorflow[and-cuda]==2.21.0", "keras"]


def test_lock_files_have_hashes_and_name_no_index() -> None:
    command = compile_command("uv", ["--group=node"], Path("out.txt"), Path("dev.txt"))
    assert command[:4] == ["uv", "pip", "compile", "--group=node"]
    assert {"--generate-hashes", "--no-emit-index-url", "--no-emit-find-links", "--universal"} < set(command)
    assert command[-4:] == ["--constraint", "dev.txt", "--output-file", "out.txt"]
    assert "--constraint" not in compile_command("uv", ["-"], Path("out.txt"), None)
