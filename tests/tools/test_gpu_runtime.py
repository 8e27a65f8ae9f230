"""Building the runtime for GPUs on a machine without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.environment.toolchain import CudaToolkit
from tools.gpu_runtime import compiled_for, main, size_gb


@pytest.mark.parametrize(
    ("version", "found"),
    [("12.6", (70, 80)), ("12.8", (70, 80, 100)), ("12.9", (70, 80, 100, 103)), ("13.0", (80, 100, 103))],
)
def test_a_toolkit_builds_for_all_that_it_knows(version: str, found: tuple[int, ...]) -> None:
    assert compiled_for(CudaToolkit(home=Path("/cuda"), version=version), [103, 80, 100, 70, 80]) == found


def test_a_size_counts_files_once_and_no_links(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"x" * 2_000_000)
    (tmp_path / "link").symlink_to("a/file")
    assert size_gb(tmp_path) == pytest.approx(0.002)


def test_without_a_compiler_nothing_is_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cuda-home", str(tmp_path), "--root", str(tmp_path / "root")]) == 1
    assert f"{tmp_path}/bin/nvcc not found" in capsys.readouterr().err
    assert not (tmp_path / "root").exists()
