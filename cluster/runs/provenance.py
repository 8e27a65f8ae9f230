"""Origin of a run for its record: commit and uncommitted changes, configuration, deployed template, prices."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from agent.spec.submission import DIFF_LIMIT, Origin
from cluster.aws.client import Aws
from cluster.aws.inventory import Inventory
from cluster.aws.prices import Prices
from cluster.aws.stack import Stack, read_template
from cluster.cli import CODE, IS_INSTALLED, VERSION
from cluster.errors import AwsError
from cluster.programs.files_to_push import names_left_out
from cluster.programs.secret_detection import has_secret_text, masked
from cluster.runs import run_owner
from stacks.config import ClusterConfig

PRICE_WAIT_S = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roots:
    """Parts of a run's origin that are known before its nodes."""

    diff: str
    started_by: Mapping[str, str]
    template_sha256: str
    """"" if the user may not read the template. Training does not need it."""


def read_roots(aws: Aws, stack: Stack, source: Path, without: Collection[str] = ()) -> Roots:
    """Return who starts the run, the hash of the deployed template, and the uncommitted changes in `source`.

    Asks AWS and git. Changes of the files in `without` are left out. The hash is "" if the template cannot be read.
    """
    try:
        template = template_sha256(read_template(aws, stack.name))
    except AwsError:
        template = ""
    return Roots(diff=read_diff(source, without), started_by=run_owner.identify(aws), template_sha256=template)


def origin_of(known: Roots, *, aws: Aws, inventory: Inventory, prices: Prices, config: ClusterConfig) -> Origin:
    """Return the origin of a run that starts now: its cluster, machines, prices, configuration and changes.

    Waits up to PRICE_WAIT_S for prices. `inventory` must have the run's nodes. Of the changes, only the first
    DIFF_LIMIT characters are kept.
    """
    kinds = {instance.id: instance.type for instance in inventory.instances}
    spot = tuple(instance.id for instance in inventory.instances if instance.spot)
    bought = sorted({*(kinds[id] for id in spot), *config.worker_types}) if spot else []
    on_spot = {kind: price for kind in bought if (price := prices.spot(kind))}
    return Origin(
        config=dataclasses.asdict(config),
        template_sha256=known.template_sha256,
        started_by=known.started_by,
        stack=inventory.stack.name,
        region=aws.region,
        endpoint=aws.endpoint,
        bucket=inventory.stack.bucket,
        instance_types=kinds,
        master=inventory.master.id,
        worker_types=config.worker_types,
        usd_per_hour=prices.per_hour(sorted({*kinds.values(), *config.worker_types}), wait_s=PRICE_WAIT_S),
        prices_of=prices.dated(kinds.values()),
        spot=spot,
        spot_usd_per_hour={kind: price.usd for kind, price in on_spot.items()},
        spot_prices_of=min((price.date for price in on_spot.values()), default=""),
        diff=known.diff[:DIFF_LIMIT],
        diff_is_cut=len(known.diff) > DIFF_LIMIT,
    )


def template_sha256(template: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a template, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(template, sort_keys=True, default=str).encode()).hexdigest()


def read_diff(source: Path, without: Collection[str] = ()) -> str:
    """Return the uncommitted changes of tracked files as `git diff` prints them; "" for a wheel, or if git fails.

    Only changes below the directory `source` are included. Some are left out: files in `without`, files that are not
    uploaded, and files with a key or a password before or after the change. Passwords and tokens in URLs are masked.
    For a deleted file only the name is recorded.
    """
    if _is_wheel(source):
        return ""
    changed = _git(source, "diff", "HEAD", "--name-only", "--no-renames", "--relative", "-z", "--", ".") or ""
    left_out = {*without, *names_left_out(source, filter(None, changed.split("\0")))}
    command = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv", "--irreversible-delete")
    paths = ("--", ".", *(f":(exclude,literal){name}" for name in sorted(left_out)))
    whole = _files_of(_git(source, *command, f"--unified={1 << 30}", *paths) or "")
    shown = _files_of(_git(source, *command, *paths) or "")
    kept = (text for name, text in shown.items() if name in whole and not _has_secret(name, whole[name]))
    return masked("".join(kept))


def _files_of(diff: str) -> dict[str, str]:
    """Split a diff into the parts of its files. The keys are the first lines of the parts, which name the files."""
    parts = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts if part}


def _has_secret(name: str, diff: str) -> bool:
    content = "\n".join(line[1:] for line in diff.split("\n") if line.startswith((" ", "+", "-")))
    return has_secret_text(content.encode(), name.rstrip('"'))


def git_commit(project: Path) -> str:
    """Return the project's commit, with a `+` if tracked files have changed; "" without git or outside of a repository.

    The code of a wheel has no commit. Its version is returned instead, also if the wheel is in a repository.
    """
    if _is_wheel(project):
        return f"deepcdk-{VERSION}"
    head, changed = _git(project, "rev-parse", "HEAD"), _git(project, "status", "--porcelain", "--untracked-files=no")
    if head is None or changed is None:
        return ""
    return head.strip() + ("+" if changed.strip() else "")


def _is_wheel(source: Path) -> bool:
    return IS_INSTALLED and source == CODE


def _git(directory: Path, *words: str) -> str | None:
    """Return the output of a git command; None if it fails, takes 10 s, or git is missing."""
    try:
        done = subprocess.run(["git", *words], cwd=directory, capture_output=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", errors="replace")
