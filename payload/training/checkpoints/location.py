"""The place of a run's checkpoints: a directory or a bucket. Standard library only."""

from __future__ import annotations

from pathlib import Path

from agent.staging.s3_objects import Prefix
from agent.staging.s3_streams import BucketClient
from payload.settings import Settings
from payload.settings.groups import parse_checkpoint_dir
from payload.training.checkpoints.policy import Retention
from payload.training.checkpoints.s3_storage import S3Storage
from payload.training.checkpoints.storage import CheckpointStorage, DirectoryStorage
from payload.training.checkpoints.store import CheckpointStore


def storage_for(checkpoint_dir: str, run_dir: Path) -> CheckpointStorage:
    """Return the storage of `--checkpoint-dir`, or the one in the run's directory. Raises SettingError."""
    location = parse_checkpoint_dir(checkpoint_dir)
    if isinstance(location, Prefix):
        return S3Storage(BucketClient(location))
    return DirectoryStorage(location or run_dir / "checkpoints")


def store_for(settings: Settings, run_dir: Path) -> CheckpointStore:
    """Return the store of a run's checkpoints. Raises SettingError."""
    retention = Retention(newest=settings.keep_checkpoints, best=settings.keep_best)
    return CheckpointStore(storage_for(settings.checkpoint_dir, run_dir), retention)
