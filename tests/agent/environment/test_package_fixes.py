"""NVIDIA's libraries are linked where TensorFlow looks for them, and Horovod's default controller is Gloo."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.package_fixes import (
    LINE,
    NAME,
    OPENER,
    link_libraries,
    listed_folders,
    make_gloo_default,
    unlisted_libraries,
)

# Packages and libraries of TensorFlow 2.21.0's wheel for GPUs, and the packages in its list of folders.
INSTALLED = {
    "cublas": ("libcublas.so.12", "libcublasLt.so.12"),
    "cuda_runtime": ("libcudart.so.12",),
    "cudnn": ("libcudnn.so.9", "libcudnn_ops.so.9"),
    "cufft": ("libcufft.so.11",),
    "cusolver": ("libcusolver.so.11", "libcusolverMg.so.11"),
    "cusparse": ("libcusparse.so.12",),
}
LISTED = ("nccl", "cublas", "cudnn", "cufft", "cusparse", "cuda_runtime", "nvshmem")


def packages(tmp_path: Path, listed: tuple[str, ...] = LISTED) -> Path:
    """Write a folder of packages as pip installs it."""
    for package, names in INSTALLED.items():
        folder = tmp_path / "nvidia" / package / "lib"
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).write_text(name)
    opener = tmp_path / OPENER
    opener.parent.mkdir()
    folders = [f"$ORIGIN/../../nvidia/{name}/lib:$ORIGIN/../nvidia/{name}/lib" for name in (*listed, *listed)]
    opener.write_bytes(b"\x7fELF\0\xff" + ":".join(folders).encode() + b"\0\xff")
    return tmp_path


def test_missing_libraries_are_linked_for_tensorflow(tmp_path: Path) -> None:
    root = packages(tmp_path)
    assert unlisted_libraries(root) == (root / "nvidia/cusolver/lib/libcusolver.so.11",)
    assert link_libraries(root) == ("libcusolver.so.11",)
    link = root / "nvidia/cublas/lib/libcusolver.so.11"
    assert (link.readlink(), link.read_text()) == (Path("../../cusolver/lib/libcusolver.so.11"), "libcusolver.so.11")
    assert (unlisted_libraries(root), link_libraries(root)) == ((), ())


def test_listed_folder_is_created_for_the_links_if_none_exists(tmp_path: Path) -> None:
    root = packages(tmp_path, ("nccl",))
    assert "libcudart.so.12" in link_libraries(root)
    assert (root / "nvidia/nccl/lib/libcudart.so.12").read_text() == "libcudart.so.12"


@pytest.mark.parametrize("listed", [(), None])
def test_nothing_is_linked_without_tensorflow_for_gpus(tmp_path: Path, listed: object) -> None:
    root = packages(tmp_path, ())
    if listed is None:
        (root / OPENER).unlink()
    assert (listed_folders(root), link_libraries(root)) == ((), ())


def controller(**variables: str) -> str:
    """Return the controller that a Python with this line selects."""
    code = f"{LINE}print(os.environ.get('HOROVOD_CONTROLLER'), os.environ.get('HOROVOD_CPU_OPERATIONS'))"
    base = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=base | variables, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


def test_single_process_uses_gloo_and_launcher_settings_are_kept() -> None:
    assert controller() == "gloo gloo"
    assert controller(HOROVOD_CONTROLLER="mpi", HOROVOD_CPU_OPERATIONS="mpi") == "mpi mpi"
    assert controller(OMPI_COMM_WORLD_RANK="0") == "None None"


def test_fix_is_one_line_of_a_pth_file(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    make_gloo_default(tmp_path)
    assert (packages / NAME).read_text() == LINE
    assert LINE.startswith("import ") and LINE.count("\n") == 1  # site executes only such lines
    with pytest.raises(FileNotFoundError, match="is not a virtual environment"):
        make_gloo_default(tmp_path / "other")


@pytest.mark.full
@pytest.mark.horovod
def test_horovod_works_without_a_launcher() -> None:
    code = "import horovod.tensorflow as hvd; hvd.init(); print(hvd.size(), hvd.gloo_enabled())"
    # Pass only PATH: other variables of the test process could hide a fault.
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.split() == ["1", "True"], done.stderr
