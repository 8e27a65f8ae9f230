"""Staging on a worker: the command line that the laptop calls, with its JSON lines."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from agent.staging.copy_to_local import own_index, part_of, wait_for_manifest
from agent.staging.errors import BusyDatasetError, DatasetError, IncompleteDataError
from agent.staging.manifest import Entry, Manifest
from agent.staging.small_files import Packer, pack_path
from agent.staging.staged_dataset import StagedDataset
from agent.staging.upload_stream import framed, receive
from tests.agent.staging.test_node_commands import held

PROJECT = Path(__file__).resolve().parents[3]
CONTENTS = {"a": b"one", "sub/b c": b"two" * 1000, "line\nü": b"", "large": b"l" * 100_000}
ENTRIES = [Entry(path=p, size=len(d), sha256=hashlib.sha256(d).hexdigest()) for p, d in CONTENTS.items()]
MANIFEST = Manifest.of(ENTRIES, "/home/me/set")


def port(local: StagedDataset, shared: StagedDataset, *flags: str, status: int = 0) -> list[dict[str, Any]]:
    words = [str(local.root), "set", str(shared.root), f"--digest={MANIFEST.digest}", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "agent.staging.copy_to_local", *words], cwd=PROJECT, capture_output=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def told(messages: list[dict[str, Any]], kind: str) -> list[str]:
    return [path for message in messages for path in message.get(kind, ())]


@pytest.fixture
def shared(tmp_path: Path) -> StagedDataset:
    """Return a data set that was just uploaded, with its pack, before staging has finished."""
    source = tmp_path / "laptop"
    for path, data in CONTENTS.items():
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        (source / path).write_bytes(data)
    dataset = StagedDataset(root=tmp_path / "efs", name="set")
    dataset.begin(MANIFEST)
    stream = io.BufferedReader(io.BytesIO(b"".join(framed(source, MANIFEST.entries))))
    with Packer(dataset) as packer:
        receive(dataset, stream, lambda _: None, packer)
    return dataset


@pytest.fixture
def local(tmp_path: Path) -> StagedDataset:
    return StagedDataset(root=tmp_path / "disk", name="set")


@pytest.mark.parametrize("packed", [True, False])
def test_copy_transfers_differences_and_reports_damaged_files(
    shared: StagedDataset, local: StagedDataset, packed: bool
) -> None:
    if not packed:
        shared.finish(MANIFEST)
    (*_, last) = port(local, shared)
    assert (held(local), last["done"]["came_bytes"], local.manifest()) == (CONTENTS, MANIFEST.size, MANIFEST)
    assert last["done"]["digest"] == MANIFEST.digest
    (local.directory / "a").write_bytes(b"onX")
    messages = port(local, shared)
    assert told(messages, "damaged") == ["a"]
    assert (held(local), messages[-1]["done"]["came_bytes"]) == (CONTENTS, 3)
    assert port(local, shared)[-1]["done"]["came_bytes"] == 0


@pytest.mark.parametrize("cut", [0, 51, 3060])
def test_truncated_or_wrong_pack_only_costs_time(shared: StagedDataset, local: StagedDataset, cut: int) -> None:
    pack = pack_path(shared)
    data = pack.read_bytes()
    pack.write_bytes(data[:cut] + b"X" * (len(data) - cut) if cut % 2 else data[:cut])
    (*_, last) = port(local, shared)
    assert (held(local), last["done"]["came_bytes"]) == (CONTENTS, MANIFEST.size)


def test_pack_has_only_small_files_and_is_removed_at_the_end(shared: StagedDataset) -> None:
    assert CONTENTS["sub/b c"] in pack_path(shared).read_bytes()
    assert CONTENTS["large"] not in pack_path(shared).read_bytes()
    shared.finish(MANIFEST)
    assert {path.name for path in shared.root.iterdir()} <= {"set", "set.manifest", ".set.lock"}


def test_missing_shared_files_are_reported_and_the_copy_stays_incomplete(
    shared: StagedDataset, local: StagedDataset
) -> None:
    path = "large"
    (shared.directory / path).write_bytes(b"X" * len(CONTENTS[path]))
    messages = port(local, shared)
    assert (told(messages, "missing"), told(messages, "spoiled")) == ([path], [])
    with pytest.raises(DatasetError, match="is incomplete"):
        local.manifest()
    shared.put(next(entry for entry in ENTRIES if entry.path == path), io.BytesIO(CONTENTS[path]))
    assert not told(port(local, shared), "missing")
    assert (held(local), local.manifest()) == (CONTENTS, MANIFEST)


def test_missing_shared_file_is_reported_even_if_the_copy_has_it(shared: StagedDataset, local: StagedDataset) -> None:
    shared.finish(MANIFEST)
    port(local, shared)
    (shared.directory / "a").unlink()
    messages = port(local, shared)
    assert (told(messages, "missing"), told(messages, "spoiled"), held(local)) == (["a"], ["a"], CONTENTS)


def test_late_manifest_is_awaited(shared: StagedDataset) -> None:
    shared.finish(MANIFEST)
    later = Manifest.of(ENTRIES[:1])
    threading.Timer(0.3, shared.begin, [later]).start()
    assert wait_for_manifest(shared, later.digest, timeout_s=60) == later


def test_unstaged_and_different_data_are_rejected(tmp_path: Path, shared: StagedDataset) -> None:
    with pytest.raises(DatasetError, match="no data set was staged to it"):
        wait_for_manifest(StagedDataset(root=tmp_path, name="set"), MANIFEST.digest, timeout_s=0)
    with pytest.raises(BusyDatasetError, match="another `fab stage-data` has started"):
        wait_for_manifest(shared, "0" * 64, timeout_s=0)


def test_shards_rotate_between_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.hardware.machine.own_addresses", lambda: {"10.0.1.1": "ens5"})
    nodes = ["10.0.1.1", "10.0.1.2"]
    first, second = (part_of(MANIFEST.entries, nodes, round_number) for round_number in (0, 1))
    assert set(first) | set(second) == set(MANIFEST.entries) and not set(first) & set(second)
    assert part_of(MANIFEST.entries, [], 0) == MANIFEST.entries
    with pytest.raises(IncompleteDataError, match="joined the cluster after the command had started"):
        own_index(["10.0.1.2"])
