"""Staging on the master: the command line that the laptop calls, with its JSON lines."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.staging import node_commands as stage_module
from agent.staging.manifest import Entry, Manifest
from agent.staging.staged_dataset import StagedDataset
from tests.stand_ins import write_program

PROJECT = Path(__file__).resolve().parents[3]
CONTENTS = {"a": b"one", "sub/b c": b"two" * 1000, "line\nü": b""}
ENTRIES = [Entry(path=p, size=len(d), sha256=hashlib.sha256(d).hexdigest()) for p, d in CONTENTS.items()]
MANIFEST = Manifest.of(ENTRIES, "/home/me/set")
AWS = """\
# Stands in for the AWS CLI: lists and copies the directory $BUCKET.
case "$*" in
*list-objects-v2*) cat "$BUCKET.json";;
*) [ -e "$BUCKET.denied" ] && { echo "(AccessDenied)" >&2; exit 1; }
   for to in "$@"; do case "$to" in /*) cp -r "$BUCKET/." "$to"; echo x >>"$BUCKET.calls";; esac; done;;
esac
"""


def stage(
    *words: str, stdin: bytes = b"", status: int = 0, given: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "agent.staging.node_commands", *words],
        cwd=PROJECT,
        input=stdin,
        capture_output=True,
        env={**os.environ, **(given or {})},
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def stream() -> bytes:
    return b"".join(entry.to_line().encode() + b"\n" + CONTENTS[entry.path] for entry in ENTRIES) + b"{}\n"


def begin(root: Path, text: bytes) -> bytes:
    return json.dumps({"begin": [str(root), "set"], "bytes": len(text)}).encode() + b"\n" + text


def receive(root: Path, files: bytes, *, packing: bool = False) -> bytes:
    return json.dumps({"receive": [str(root), "set"], "packing": packing}).encode() + b"\n" + files


def finish(root: Path) -> bytes:
    return json.dumps({"finish": [str(root), "set"]}).encode() + b"\n"


def serve(*asked: bytes, status: int = 0) -> list[dict[str, Any]]:
    return [message for message in stage("serve", stdin=b"".join(asked), status=status) if "alive" not in message]


WANTED = MANIFEST.to_text().encode()


@pytest.fixture
def shared(tmp_path: Path) -> StagedDataset:
    """Return a staged data set."""
    root = tmp_path / "efs"
    assert len(serve(begin(root, WANTED), receive(root, stream()), finish(root))) == 3
    return StagedDataset(root=root, name="set")


def held(dataset: StagedDataset) -> dict[str, bytes]:
    found = (path for path in dataset.directory.rglob("*") if path.is_file())
    return {str(path.relative_to(dataset.directory)): path.read_bytes() for path in found}


def test_files_are_received_and_listed(shared: StagedDataset) -> None:
    assert held(shared) == CONTENTS
    assert shared.manifest() == MANIFEST


def test_damaged_and_missing_files_are_reported(shared: StagedDataset) -> None:
    (shared.directory / "a").write_bytes(b"onX")
    (shared.directory / "line\nü").unlink()
    begun = serve(begin(shared.root, WANTED))
    assert begun[-1]["done"] == {"foreign": 0, "found": 2}
    messages = stage("check", str(shared.root), "set")
    assert [m["missing"] for m in messages if "missing" in m] == [["a", "line\nü"]]
    assert [m["spoiled"] for m in messages if "spoiled" in m] == [["a", "line\nü"]]


def test_interrupted_stream_is_reported_and_can_be_continued(shared: StagedDataset, tmp_path: Path) -> None:
    root = tmp_path / "other"
    (*_, last) = serve(begin(root, WANTED)[:-5], status=1)
    assert (last["kind"], (root / "set.manifest.new").exists()) == ("broken off", False)
    (*_, last) = serve(begin(root, WANTED), receive(root, stream()[:-2000]), status=1)
    assert last["kind"] == "broken off"
    (*_, last) = serve(finish(root), status=1)
    assert "is missing" in last["error"]
    messages = stage("check", str(root), "set")
    assert {path for m in messages for path in m.get("missing", ())} == {"sub/b c", "line\nü"}


def test_heartbeats_are_sent_during_slow_commands(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = []

    class Slow(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            while not messages:  # block the stream until a message arrives
                os.sched_yield()
            return super().readline(size)

    stage_module.serve(Slow(begin(tmp_path, WANTED) + receive(tmp_path, stream())), messages.append, every_s=0.01)
    assert messages[0] == {"alive": True}
    assert {"done": {"files": 3, "bytes": MANIFEST.size}} in messages


@pytest.fixture
def bucket(tmp_path: Path) -> dict[str, str]:
    """Make a bucket, and an `aws` that reads it."""
    folder = tmp_path / "bucket"
    for path, data in CONTENTS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    contents = [{"Key": f"set/{e.path}", "Size": e.size, "ETag": f'"{e.sha256[:8]}"'} for e in ENTRIES]
    Path(f"{folder}.json").write_text(json.dumps({"Contents": contents}))
    write_program(tmp_path / "bin" / "aws", AWS)
    return {"BUCKET": str(folder), "PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"}


def calls(bucket: dict[str, str]) -> int:
    file = Path(f"{bucket['BUCKET']}.calls")
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_bucket_is_fetched_once_to_a_disk(bucket: dict[str, str], tmp_path: Path) -> None:
    local = StagedDataset(root=tmp_path / "disk", name="set")
    fetch = ("fetch", str(local.root), "set", "s3://my-data/set", "us-east-1")
    (*_, last) = stage(*fetch, given=bucket)
    assert (held(local), last["done"]["digest"], calls(bucket)) == (CONTENTS, MANIFEST.digest, 1)
    (*_, last) = stage(*fetch, given=bucket)
    assert (last["done"]["came_bytes"], calls(bucket)) == (0, 1)
    (local.directory / "a").write_bytes(b"onX")
    (*_, last) = stage(*fetch, given=bucket)
    assert (held(local), last["done"]["came_bytes"], calls(bucket)) == (CONTENTS, 3, 2)


def test_bucket_is_fetched_to_the_shared_file_system_and_listed_with_hashes(
    bucket: dict[str, str], tmp_path: Path
) -> None:
    dataset = StagedDataset(root=tmp_path / "efs", name="set")
    listed = subprocess.run(
        [sys.executable, "-m", "agent.staging.node_commands", "list", "s3://my-data/set", "us-east-1"],
        cwd=PROJECT,
        env={**os.environ, **bucket},
        capture_output=True,
        check=True,
    )
    serve(begin(dataset.root, listed.stdout))
    stage("fetch-shared", str(dataset.root), "set", "s3://my-data/set", "us-east-1", given=bucket)
    serve(finish(dataset.root))
    assert held(dataset) == CONTENTS
    assert dataset.manifest().digest == MANIFEST.digest
    assert {path.name for path in dataset.root.iterdir()} == {"set", "set.manifest"}


def test_forbidden_bucket_is_reported(bucket: dict[str, str], tmp_path: Path) -> None:
    Path(f"{bucket['BUCKET']}.denied").touch()
    fetch = ("fetch", str(tmp_path / "disk"), "set", "s3://my-data/set", "us-east-1")
    (*_, last) = stage(*fetch, status=1, given=bucket)
    assert last["kind"] == "denied" and "s3:ListBucket on the bucket my-data" in last["error"]
