"""Where a run keeps its checkpoints. Standard library only."""

from __future__ import annotations

from pathlib import Path

from agent.staging.dataset import DatasetError
from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient
from payload.settings import SettingError
from payload.training.checkpoints.s3_storage import Bucket
from payload.training.checkpoints.storage import Depot, Directory


def depot_for(checkpoint_dir: str, run_dir: Path) -> Depot:
    """Return the depot of `--checkpoint-dir`, or the one in the run's directory. Raises SettingError."""
    if not checkpoint_dir.startswith("s3:"):
        return Directory(Path(checkpoint_dir) if checkpoint_dir else run_dir / "checkpoints")
    try:
        prefix = Prefix.parse(checkpoint_dir)
    except DatasetError as error:
        raise SettingError("--checkpoint-dir", None, str(error)) from None
    if not prefix.key:
        rule = "name a prefix of the run's own below the bucket, as s3://BUCKET/runs/ID/checkpoints"
        raise SettingError("--checkpoint-dir", checkpoint_dir, rule)
    return Bucket(BucketClient(prefix))
