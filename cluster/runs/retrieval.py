"""Where a run is read from: the cluster, or the copies in the bucket once the cluster is gone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import DeepcdkError, NoStackError
from cluster.runs import archive as archives
from cluster.ssh import fetch as fetching
from cluster.terminal.output import print_note

if TYPE_CHECKING:
    from cluster.session import Session
    from cluster.ssh.fetch import Fetched


def archived(session: Session, *, archive_only: bool) -> archives.Archive | None:
    """Return the bucket's copies where the cluster is gone, or where only they are wanted; else None.

    Raises NoStackError where there is neither a cluster nor a bucket, DeepcdkError where no bucket is to be found.
    """
    if not archive_only:
        try:
            session.load_inventory()
            return None
        except NoStackError:
            if found := archives.find(session.aws, session.config.stack_name):
                print_note(f"the cluster is not deployed; what follows is from {found}")
                return found
            raise
    if found := archives.find(session.aws, session.config.stack_name):
        return found
    raise DeepcdkError(
        f"no bucket of {session.config.stack_name} is left",
        where=f"region {session.aws.region}",
        remedy="it goes with the cluster where that is deployed with retain_data=false",
    )


def fetch_run(
    session: Session, run_id: str, into: Path, *, archive_only: bool = False, checkpoints: bool = False
) -> Fetched:
    """Bring a run's files to `into/RUN_ID`; of the live or newest run for "". Raises DeepcdkError."""
    if archive := archived(session, archive_only=archive_only):
        return archive.fetch(run_id, into)
    with session.connect() as master:
        found = session.supervisor(master).status(run_id)["run_id"]
        return fetching.fetch(master, session.stack.runs_root, found, into, checkpoints=checkpoints)
