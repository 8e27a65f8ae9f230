"""Fake programs for tests."""

from __future__ import annotations

from pathlib import Path


def write_program(path: Path, script: str) -> str:
    """Write a shell script that can be executed; return its path."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)
