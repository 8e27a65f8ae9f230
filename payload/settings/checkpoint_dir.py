"""Where `--checkpoint-dir` points: a directory or a prefix of a bucket. Standard library only."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from agent.staging.errors import DatasetError
from agent.staging.s3_objects import Prefix
from payload.settings.rules import SettingError

FLAG: Final = "--checkpoint-dir"


def parse_checkpoint_dir(text: str) -> Path | Prefix | None:
    """Parse a directory or s3://BUCKET/PREFIX; return None for "". Raises SettingError."""
    if not text.startswith("s3:"):
        return Path(text) if text else None
    try:
        prefix = Prefix.parse(text)
    except DatasetError as error:
        raise SettingError(FLAG, None, str(error)) from None
    if not prefix.key:
        rule = "name a prefix of the run's own below the bucket, as s3://BUCKET/runs/ID/checkpoints"
        raise SettingError(FLAG, text, rule)
    return prefix
