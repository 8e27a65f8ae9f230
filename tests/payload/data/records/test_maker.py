from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from payload.data.dataset import View
from payload.data.records import maker
from payload.data.records.maker import MANIFEST, main
from payload.data.records.record_split import open_record_splits
from payload.data.records.shards import MAKING
from tests.payload.data.drawings import SHAPES, write_images
from tests.waiting import eventually

ROOT = Path(__file__).parents[4]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    write_images(tmp_path / "raw", training=24, validation=8)
    return tmp_path / "raw"


def words(raw: Path, destination: Path, *more: str) -> list[str]:
    return [str(raw), str(destination), "--sizes", "0,16,32", "--shards", "4", "--workers", "1", *more]


def contents(destination: Path) -> dict[str, str]:
    return {
        str(path.relative_to(destination)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(destination.rglob("*-of-*"))
        if MAKING not in path.parts
    }


def test_record_files_of_each_size_are_created_with_index_and_manifest(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words(raw, tmp_path / "made")) == 0
    assert "24 training and 8 validation images of 4 classes, 0 skipped" in capsys.readouterr().out
    manifest: dict[str, Any] = json.loads((tmp_path / "made" / MANIFEST).read_text())
    assert manifest["classes"] == list(SHAPES)
    assert (manifest["training"], manifest["validation"], manifest["sizes"]) == (24, 8, [0, 16, 32])
    assert (tmp_path / "made" / "labels.txt").read_text().split() == list(SHAPES)
    found = contents(tmp_path / "made")
    assert {path: facts["sha256"] for path, facts in manifest["files"].items()} == found
    assert len(found) == 3 * (4 + 1)
    for folder in ("original", "16", "32"):
        assert (tmp_path / "made" / folder / "train.index").is_file()
    train, test = open_record_splits(tmp_path / "made", name="drawings", classes=0, skip=False, cache="none")
    assert test is not None
    assert (train.examples, test.examples, train.classes) == (24, 8, 4)
    assert train.records_for(View(size=(14, 14))).directory.name == "16"


def test_killed_maker_continues_without_repeating_finished_files(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, fresh = tmp_path / "made", tmp_path / "fresh"
    assert main(words(raw, fresh)) == 0
    # A pipe without a writer blocks the last shard for as long as the test needs.
    last = raw / "validation" / SHAPES[3]
    victim = sorted(last.iterdir())[-1]
    picture = victim.read_bytes()
    victim.unlink()
    os.mkfifo(victim)
    making = subprocess.Popen([sys.executable, "-m", "payload.data.records.maker", *words(raw, made)], cwd=ROOT)
    eventually(lambda: len(list((made / MAKING).glob("train-*.json"))) == 4 or making.poll() is not None)
    assert making.poll() is None
    making.kill()
    making.wait()
    assert not (made / MANIFEST).exists()
    victim.unlink()
    victim.write_bytes(picture)
    times = {path: path.stat().st_mtime_ns for path in made.rglob("train-*-of-*")}
    capsys.readouterr()
    assert main(words(raw, made)) == 0
    assert "4 of 5 shards already exist" in capsys.readouterr().out
    assert contents(made) == contents(fresh)
    assert times == {path: path.stat().st_mtime_ns for path in made.rglob("train-*-of-*")}
    assert (made / MANIFEST).read_bytes() == (fresh / MANIFEST).read_bytes()
    assert not list(made.rglob("*.partial"))


def test_several_workers_create_the_same_files(raw: Path, tmp_path: Path) -> None:
    assert main(words(raw, tmp_path / "one")) == 0
    assert main(words(raw, tmp_path / "two", "--workers", "2")) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_damaged_image_stops_maker_and_finished_files_are_kept(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = sorted((raw / "validation" / SHAPES[0]).iterdir())[0]
    victim.write_bytes(b"no image")
    assert main(words(raw, tmp_path / "made")) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"payload.data.records.maker: error: {victim}: damaged")
    assert said.count("\n") == 1
    assert len(list((tmp_path / "made" / "16").glob("train-*-of-*"))) == 4
    assert main(words(raw, tmp_path / "made", "--corrupt", "skip")) == 0
    out = capsys.readouterr().out
    assert "4 of 5 shards already exist" in out
    assert f"skipped: validation/{SHAPES[0]}/{victim.name}" in out


def test_destination_with_other_data_is_rejected(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maker, "made_shards", lambda jobs, workers: iter(()))
    with pytest.raises(KeyError):  # no shard was made, which happens only in a test
        main(words(raw, tmp_path / "made"))
    assert main(words(raw, tmp_path / "made", "--quality", "80")) == 1
    assert "contains shards of other images, sizes or settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (["--sizes", "160,160"], "--sizes 160,160: must be different"),
        (["--sizes", "9000"], "--sizes 9000: each must be"),
        (["--shards", "0"], "--shards 0: must be 1 to 99999"),
        (["--quality", "100"], "--quality 100: must be 1 to 95"),
    ],
)
def test_invalid_values_are_rejected_with_flag(
    raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], fault: str
) -> None:
    assert main([str(raw), str(tmp_path / "made"), *flags]) == 2
    assert fault in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_flag_with_invalid_number_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["raw", "made", "--sizes", "160,large"])
    said = capsys.readouterr().err
    assert said.startswith("payload.data.records.maker: error: argument --sizes: must be whole numbers separated by")
    assert said.count("\n") == 1
