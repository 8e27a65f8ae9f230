"""Where a run keeps its checkpoints. Standard library only."""

from __future__ import annotations

from pathlib import Path

from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient
from payload.settings.checkpoint_dir import parse_checkpoint_dir
from payload.training.checkpoints.s3_storage import Bucket
from payload.training.checkpoints.storage import Depot, Directory


def depot_for(checkpoint_dir: str, run_dir: Path) -> Depot:
    """Return the depot of `--checkpoint-dir`, or the one in the run's directory. Raises SettingError."""
    place = parse_checkpoint_dir(checkpoint_dir)
    if isinstance(place, Prefix):
        return Bucket(BucketClient(place))
    return Directory(place or run_dir / "checkpoints")
