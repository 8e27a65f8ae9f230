"""Facts about ranks over Open MPI: the wheel goes before what is installed, and a rank learns its place."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from benchmarks.mpi_ranks import launch, placed, printed
from benchmarks.two_ranks import NETWORKS, run


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    with zipfile.ZipFile(tmp_path / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl", "w") as archive:
        archive.writestr("horovod/__init__.py", "WITH = 'mpi'\n")
    return Path(str(archive.filename))


def test_the_wheel_goes_before_the_horovod_that_is_installed(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "mpirun").write_text("#!/bin/sh\n")
    (tmp_path / "mpirun").chmod(0o755)
    command, environ = launch(["true"], {"PATH": str(tmp_path), "PYTHONPATH": "/mine"}, wheel, tmp_path)
    first, _, rest = environ["PYTHONPATH"].partition(":")
    assert (Path(first) / "horovod" / "__init__.py").read_text() == "WITH = 'mpi'\n"
    assert rest == "/mine"
    assert environ["HOROVOD_CONTROLLER"] == "mpi"
    assert command[-3:] == ["-m", "benchmarks.mpi_ranks", "true"]


def test_without_open_mpi_it_says_what_to_install(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="openmpi-bin"):
        launch(["true"], {"PATH": str(tmp_path)}, wheel, tmp_path)


def test_without_a_wheel_the_way_is_refused() -> None:
    with pytest.raises(ValueError, match="built with MPI"):
        run("mpi", NETWORKS["lenet"], Path("/none"))


def test_a_rank_reads_its_place_as_horovodrun_would_say_it() -> None:
    said = {"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_SIZE": "4"}
    assert placed(said) == {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "2", "HOROVOD_SIZE": "4"}


def test_what_the_ranks_printed_is_read_rank_by_rank(tmp_path: Path) -> None:
    for rank in range(2):
        directory = tmp_path / "printed" / "1" / f"rank.{rank}"
        directory.mkdir(parents=True)
        (directory / "stdout").write_text(f"figures of {rank}\n")
        (directory / "stderr").write_text("a warning\n")
    assert printed(tmp_path) == ["a warning\nfigures of 0\n", "a warning\nfigures of 1\n"]
