"""Public reports about the processes of a run: output, limits, signals, what is left behind, memory, waiting ranks."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agent.launch.rank import environment
from agent.remote import rank_leftovers, rank_user
from agent.spec.launchers import LAUNCHERS
from agent.spec.nodes import RANK_HOME
from tests.factories import make_program_spec, make_spec

PROJECT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_output_is_unbuffered_under_every_launcher(launcher: str) -> None:
    """Reported as skypilot PR 1290, pytorch PR #7226."""
    assert environment(make_program_spec(rank_launcher=launcher), {}, "/python", "")["PYTHONUNBUFFERED"] == "1"
    assert environment(make_spec(), {}, "/python", "")["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize("given", ["", "0", "2"])
def test_users_choice_of_buffering_is_kept(given: str) -> None:
    """Reported as skypilot PR 1290."""
    spec = make_program_spec(environment=(("PYTHONUNBUFFERED", given),))
    assert environment(spec, {}, "/python", "")["PYTHONUNBUFFERED"] == given


LIMITS = """\
import json, resource
print(json.dumps([resource.getrlimit(n) for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]))
"""


def test_soft_limits_of_ranks_are_raised_to_the_hard_limits(tmp_path: Path) -> None:
    """Reported as verl #2047, pytorch #165532."""
    spec = make_program_spec(efs_mount=str(tmp_path), command=("python", "-c", LIMITS))
    run = tmp_path / "runs" / spec.run_id
    (run / "work").mkdir(parents=True)
    (run / "spec.json").write_text(spec.to_json())

    def lower() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 3000))
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, 65536))

    words = [sys.executable, "-m", "agent.launch.rank", str(run)]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, preexec_fn=lower, check=True)
    assert json.loads(done.stdout) == [[3000, 3000], [65536, 65536]]


def test_temporary_files_of_ranks_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported as pip #12444, pullpreview PR #54."""
    monkeypatch.setattr(rank_user, "RANK_UID", os.getuid())
    monkeypatch.setattr(rank_user, "RANK_HOME", str(tmp_path))
    found = rank_user.temporary_files()
    assert found == {"TMPDIR": str(tmp_path / "tmp")} and (tmp_path / "tmp").is_dir()
    assert environment(make_program_spec(), found, "/python", "")["TMPDIR"] == found["TMPDIR"]
    theirs = make_program_spec(environment=(("TMPDIR", "/mnt/scratch"),))
    assert environment(theirs, found, "/python", "")["TMPDIR"] == "/mnt/scratch"


def test_temporary_files_are_removed_before_the_next_run(tmp_path: Path) -> None:
    """Reported as pip #12444."""
    temporary = tmp_path / RANK_HOME.lstrip("/") / "tmp"
    temporary.mkdir(parents=True)
    (tmp_path / "proc/sysvipc").mkdir(parents=True)
    assert not rank_leftovers.files_are_there(tmp_path)
    (temporary / "pymp-1").mkdir()
    assert rank_leftovers.files_are_there(tmp_path)
