"""Make Gloo the default controller of Horovod, by a line that every start of a Python executes.

Built with both, Horovod tries MPI first, and Open MPI would start a daemon for a single process, such as a notebook or
a program under `fab run`. Standard library only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

NAME: Final = "horovod_alone.pth"
LINE: Final = (
    "import os; 'OMPI_COMM_WORLD_RANK' in os.environ or "
    "[os.environ.setdefault(name, 'gloo') for name in ('HOROVOD_CONTROLLER', 'HOROVOD_CPU_OPERATIONS')]\n"
)
"""Under an mpirun of the user's own it sets nothing; the launchers here set both themselves."""


def write(environment: Path) -> None:
    """Write the line into a virtual environment. Raises FileNotFoundError for any other directory."""
    packages = next((environment / "lib").glob("python3*/site-packages"), None)
    if packages is None:
        raise FileNotFoundError(f"{environment} is no virtual environment")
    (packages / NAME).write_text(LINE, encoding="ascii")
