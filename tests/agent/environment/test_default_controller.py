"""Facts about Horovod without a launcher: Gloo, unless the environment or mpirun says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment.default_controller import LINE, NAME, write


def controller(**variables: str) -> str:
    """Return what a Python that reads the line has for a controller."""
    code = f"{LINE}print(os.environ.get('HOROVOD_CONTROLLER'), os.environ.get('HOROVOD_CPU_OPERATIONS'))"
    base = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=base | variables, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr


def test_a_lone_process_takes_gloo() -> None:
    assert controller() == "gloo gloo"


def test_what_a_launcher_says_stays() -> None:
    assert controller(HOROVOD_CONTROLLER="mpi", HOROVOD_CPU_OPERATIONS="mpi") == "mpi mpi"
    assert controller(OMPI_COMM_WORLD_RANK="0") == "None None"


def test_it_is_one_line_where_every_start_of_python_reads_it(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    write(tmp_path)
    assert (packages / NAME).read_text() == LINE
    assert LINE.startswith("import ") and LINE.count("\n") == 1  # site runs such lines alone
    with pytest.raises(FileNotFoundError, match="no virtual environment"):
        write(tmp_path / "other")


@pytest.mark.horovod
def test_horovod_works_without_a_launcher() -> None:
    code = "import horovod.tensorflow as hvd; hvd.init(); print(hvd.size(), hvd.gloo_enabled())"
    # Nothing but the path: what stands in the environment of the tests must not help.
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=600
    )
    assert done.stdout.split() == ["1", "True"], done.stderr
