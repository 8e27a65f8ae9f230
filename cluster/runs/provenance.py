"""Tell where a run comes from: the configuration, the deployed template, the prices, what differs from the commit."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.spec.provenance import DIFF_LIMIT, Origin
from agent.spec.run import RunSpec
from cluster.aws import inventory
from cluster.aws.stack import read_template
from cluster.errors import AwsError
from cluster.session import Session

PRICE_WAIT_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roots:
    """Hold what of an origin is known before the run is."""

    diff: str
    template_sha256: str
    """"" where the template may not be read: whoever may not may train all the same."""


def roots(session: Session, source: Path) -> Roots:
    """Ask for the deployed template, and for what differs from the commit in `source`."""
    try:
        template = template_sha256(read_template(session.aws, session.stack.name))
    except AwsError:
        template = ""
    return Roots(diff=read_diff(source), template_sha256=template)


def of(session: Session, launch: RunSpec, known: Roots) -> Origin:
    """Return the origin of a run that this session starts."""
    found = session.inventory
    if {host.instance_id for host in launch.hosts} - {instance.id for instance in found.instances}:
        found = inventory.refresh(session.aws, session.stack)  # The group has grown for it.
    kinds = {instance.id: instance.type for instance in found.instances}
    return Origin(
        config=dataclasses.asdict(session.config),
        template_sha256=known.template_sha256,
        stack=session.stack.name,
        region=session.aws.region,
        bucket=session.stack.bucket,
        instance_types=kinds,
        master=found.master.id,
        usd_per_hour=session.prices.per_hour(sorted(set(kinds.values())), wait_s=PRICE_WAIT_S),
        diff=known.diff[:DIFF_LIMIT],
        diff_is_cut=len(known.diff) > DIFF_LIMIT,
    )


def template_sha256(template: Mapping[str, Any]) -> str:
    """Return the hash of a template, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(template, sort_keys=True, default=str).encode()).hexdigest()


def read_diff(source: Path) -> str:
    """Return what differs from the commit below a directory, as `git diff` writes it; "" without git."""
    try:
        done = subprocess.run(
            ["git", "diff", "HEAD", "--no-color", "--no-ext-diff", "--", "."],
            cwd=source,
            capture_output=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", errors="replace")
