"""`python -m localcloud`."""

from __future__ import annotations

from localcloud.cli import run

run()
