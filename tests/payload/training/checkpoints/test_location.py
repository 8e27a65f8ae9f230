from __future__ import annotations

from pathlib import Path

import pytest

from payload.settings import SettingError
from payload.training.checkpoints.storage import DirectoryStorage, S3Storage
from payload.training.checkpoints.store import storage_for

RUN = Path("/runs/one")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("", "/runs/one/checkpoints"),
        ("/mnt/fsx/one", "/mnt/fsx/one"),
        ("s3://my-runs/one/checkpoints/", "s3://my-runs/one/checkpoints"),
    ],
)
def test_a_place_is_a_directory_or_a_prefix_of_a_bucket(given: str, address: str) -> None:
    storage = storage_for(given, RUN)
    assert storage.address() == address
    assert isinstance(storage, S3Storage if given.startswith("s3") else DirectoryStorage)


def test_a_whole_bucket_or_none_is_refused() -> None:
    with pytest.raises(SettingError, match="--checkpoint-dir s3://my-runs: name a prefix of the run's own"):
        storage_for("s3://my-runs", RUN)
    with pytest.raises(SettingError, match="--checkpoint-dir: 's3://My/x' is no s3://BUCKET/PREFIX"):
        storage_for("s3://My/x", RUN)
