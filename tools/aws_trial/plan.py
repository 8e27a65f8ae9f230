"""The plan of a trial: its settings, and its commands in order. Pure functions."""

from __future__ import annotations

import dataclasses
import re
import secrets
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "deepcdk-trial-"
_NAME: Final = re.compile(rf"{PREFIX}[0-9a-f]{{4,12}}")
TAG: Final = "deepcdk-trial"
"""Key of the tag that every resource of a trial has; its value is the cluster's name."""
WORKERS: Final = 2
MAX_WORKERS: Final = 3
WORKER_TYPE: Final = "c6i.xlarge"
"""4 vCPUs and 8 GiB: the smallest of the compute types that builds Horovod in some minutes."""
MAX_HOURS: Final = 3
"""Bound for a trial whose laptop is lost: all workers are stopped by then."""
FIRST: Final = "doctor before"
CREATION: Final = "up"
FETCH: Final = "fetch"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One command of `fab`."""

    name: str
    """Unique in the plan."""
    words: tuple[str, ...]
    may_fail: bool = False
    """Whether the next steps make sense after its failure."""


STEPS: Final = (
    Step(name=FIRST, words=("doctor", "--json"), may_fail=True),
    Step(name=CREATION, words=("up", "--yes")),
    Step(name="status", words=("status", "--json"), may_fail=True),
    Step(name="doctor after", words=("doctor", "--json"), may_fail=True),
    Step(name="plan without a change", words=("up", "--plan"), may_fail=True),
    Step(name="run", words=("run", "--", "nproc"), may_fail=True),
    Step(name="train", words=("train", "--nodes", str(WORKERS), "--recipe", "digits", "--yes"), may_fail=True),
    Step(name="show", words=("show", "--json"), may_fail=True),
    Step(name=FETCH, words=("fetch",), may_fail=True),
    Step(name="replace", words=("replace", "worker1", "--yes"), may_fail=True),
    Step(name="train again", words=("train", "--nodes", str(WORKERS), "--recipe", "digits", "--yes"), may_fail=True),
)
DESTRUCTION: Final = Step(name="down", words=("down", "--yes", "--force"), may_fail=True)
"""Run whatever came before."""


def new_name() -> str:
    """Return a name for the cluster of a trial that no other trial has."""
    return f"{PREFIX}{secrets.token_hex(2)}"


def is_trial_name(name: str) -> bool:
    """Return whether a cluster of this name can be a trial's: what a trial destroys is never a cluster in use."""
    return _NAME.fullmatch(name) is not None


def settings(name: str, ssh_cidr: str, worker_type: str = WORKER_TYPE) -> dict[str, str]:
    """Return the settings of a trial's cluster. An empty `ssh_cidr` stands for Session Manager and no open port."""
    reach = {"ssh_cidr": ssh_cidr} if ssh_cidr else {"ssh_access": "session-manager"}
    return {
        "name": name,
        "key_name": name,
        "tags": f"{TAG}={name}",
        "workers": str(WORKERS),
        "max_workers": str(MAX_WORKERS),
        "worker_instance_type": worker_type,
        "max_hours": str(MAX_HOURS),
        "retain_data": "false",
        **reach,
    }


def overrides(given: Mapping[str, str]) -> list[str]:
    """Return settings as arguments of `fab`."""
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def command(step: Step, given: Mapping[str, str]) -> list[str]:
    """Return a step's command line, its settings before what stands after --."""
    words = list(step.words)
    at = words.index("--") if "--" in words else len(words)
    return ["fab", *words[:at], *overrides(given), *words[at:]]
