from __future__ import annotations

import dataclasses
import errno
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import ReportedError
from payload.settings import SettingError, Settings
from payload.training.checkpoints.checkpoint_files import CheckpointStore, DamagedCheckpointError, store_for
from payload.training.checkpoints.checkpoint_storage import ARRAYS, MANIFEST, WRITER, DirectoryStorage
from payload.training.checkpoints.resume import (
    FIXED_SETTINGS,
    FREE_SETTINGS,
    StartPoint,
    changed_settings,
    checkpoint_settings,
    restore_or_begin,
    with_batch_of_resumed,
)
from payload.training.progress import Progress, StepSums
from payload.training.safetensors_io import Arrays

FRESH = Progress(recipe="digits", seed=1, global_batch=4)
EPOCHS, STEPS = 3, 4
SETTINGS = {"seed": 1, "learning_rate": 0.1}


class Toy:
    """A network of three weights, trained with momentum on numbers that depend on epoch and step."""

    def __init__(self) -> None:
        self.weights: npt.NDArray[np.float32] = np.ones(3, np.float32)
        self.velocity: npt.NDArray[np.float32] = np.zeros(3, np.float32)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"model/w": self.weights.copy(), "optimizer/v": self.velocity.copy()}

    def restore(self, arrays: Arrays) -> None:
        self.weights, self.velocity = arrays["model/w"], arrays["optimizer/v"]

    def step(self, epoch: int, step: int) -> float:
        images = np.random.default_rng([1, epoch]).standard_normal((STEPS, 3)).astype(np.float32)
        self.velocity = np.float32(0.9) * self.velocity - np.float32(0.01) * images[step]
        self.weights = self.weights + self.velocity
        return float(self.weights @ images[step])


def started(store: CheckpointStore, toy: Toy, resume: bool, settings: dict[str, Any] = SETTINGS) -> StartPoint:
    return restore_or_begin(toy.restore, store, FRESH, settings=settings, resume=resume)


def train(store: CheckpointStore, *, every: int, until: int, resume: bool) -> tuple[list[tuple[int, float]], Toy]:
    """Train to the end, or until killed after `until` steps; return the total steps and loss sum of each step."""
    toy = Toy()
    progress = started(store, toy, resume).progress
    losses = []
    for _ in range(until):
        if progress.epoch == EPOCHS:
            break
        loss = toy.step(progress.epoch, progress.step)
        progress = progress.after_step(StepSums(loss=loss, correct=1, correct5=2, stops=0, skipped=0), 4)
        losses.append((progress.total_steps, progress.loss_sum))
        if progress.step == STEPS:
            progress = progress.next_epoch()
        if progress.total_steps % every == 0:
            store.save(progress, toy.arrays(), settings=SETTINGS)
    return losses, toy


def store_in(directory: str) -> CheckpointStore:
    return store_for(Settings(), Path(directory))


@settings(max_examples=25)  # each takes half a second
@given(
    every=st.integers(1, 5),
    kills=st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5),
)
def test_run_killed_at_any_steps_ends_like_an_uninterrupted_one(every: int, kills: list[tuple[int, bool]]) -> None:
    """`kills`: steps after which the run dies, and whether its newest checkpoint is damaged then."""
    with tempfile.TemporaryDirectory() as straight, tempfile.TemporaryDirectory() as broken:
        expected, whole = train(store_in(straight), every=every, until=99, resume=False)
        found: dict[int, float] = {}
        for until, damaged in [*kills, (99, False)]:
            losses, toy = train(store_in(broken), every=every, until=until, resume=True)
            for step, loss in losses:
                assert found.setdefault(step, loss) == loss, "a step that is taken again gives the same"
            names = store_in(broken).names()
            if damaged and names:
                file = Path(broken, "checkpoints", names[0], ARRAYS)
                file.write_bytes(file.read_bytes()[:-1])
        assert found == dict(expected)
        assert toy.weights.tobytes() == whole.weights.tobytes()
        assert toy.velocity.tobytes() == whole.velocity.tobytes()


def test_run_does_not_start_over_existing_checkpoints(tmp_path: Path) -> None:
    store = store_for(Settings(), tmp_path)
    assert started(store, Toy(), resume=False) == started(store, Toy(), resume=True) == StartPoint(progress=FRESH)
    store.save(FRESH, Toy().arrays())
    with pytest.raises(ReportedError, match=r"checkpoints already contains checkpoints; use --resume"):
        started(store, Toy(), resume=False)


def test_skipped_checkpoints_and_changed_settings_are_reported(tmp_path: Path) -> None:
    store = store_for(dataclasses.replace(Settings(), keep_best=True), tmp_path)
    for step in (1, 2):
        store.save(dataclasses.replace(FRESH, total_steps=step), Toy().arrays(), settings=SETTINGS, accuracy=step / 4)
    (tmp_path / "checkpoints" / "step-00000002" / ARRAYS).unlink()
    found = started(store, Toy(), resume=True, settings={"seed": 1, "learning_rate": 0.2})
    assert (found.resumed_from, found.progress.total_steps, found.best_accuracy) == ("step-00000001", 1, 0.25)
    assert found.changes == ("--learning-rate 0.2 (was 0.1)",)
    (fault,) = found.faults
    assert "step-00000002: damaged checkpoint" in fault
    with pytest.raises(SettingError, match="--seed 2: the run to resume had 1"):
        started(store, Toy(), resume=True, settings={"seed": 2})


def test_checkpoint_of_another_network_is_reported(tmp_path: Path) -> None:
    class Other(Toy):
        def restore(self, arrays: Arrays) -> None:
            raise ReportedError(f"not of this network: {min(arrays)}")

    store = store_for(Settings(), tmp_path)
    store.save(FRESH, Toy().arrays())
    with pytest.raises(
        DamagedCheckpointError, match="step-00000000: unusable checkpoint: not of this network: model/w"
    ):
        started(store, Other(), resume=True)


@pytest.mark.parametrize("damage", ["manifest cut", "arrays cut", "arrays flipped", "arrays gone"])
def test_if_all_checkpoints_are_lost_the_run_restarts_and_replaces_them(tmp_path: Path, damage: str) -> None:
    store, toy = store_for(Settings(), tmp_path), Toy()
    for step in (1, 2):
        store.save(dataclasses.replace(FRESH, total_steps=step), toy.arrays(), settings=SETTINGS)
    for directory in (tmp_path / "checkpoints").glob("step-*"):
        file = directory / (MANIFEST if damage.startswith("manifest") else ARRAYS)
        if damage.endswith("gone"):
            file.unlink()
        elif damage.endswith("cut"):
            file.write_bytes(file.read_bytes()[:-9])
        else:
            content = bytearray(file.read_bytes())
            content[-1] ^= 1
            file.write_bytes(content)
    again = store_for(Settings(), tmp_path)
    found = started(again, toy, resume=True)
    assert (found.progress, found.resumed_from) == (FRESH, None)
    assert ["step-00000002" in fault for fault in found.faults] == [True, False]
    again.save(dataclasses.replace(FRESH, total_steps=1), toy.arrays(), settings=SETTINGS)
    newest, _ = store_for(Settings(), tmp_path).newest_valid()
    assert newest is not None and newest.name == "step-00000001"
    again.save(dataclasses.replace(FRESH, total_steps=3), toy.arrays(), settings=SETTINGS)
    assert again.names() == ["step-00000003", "step-00000001"]


@pytest.mark.parametrize("fault", ["another format", "a disk that fails"])
def test_run_does_not_restart_while_a_checkpoint_may_become_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    store = store_for(Settings(), tmp_path)
    for step in (1, 2):
        store.save(dataclasses.replace(FRESH, total_steps=step), Toy().arrays())
    manifests = [tmp_path / "checkpoints" / f"step-0000000{step}" / MANIFEST for step in (1, 2)]
    manifests[1].write_text("{")
    if fault == "another format":
        manifests[0].write_text(json.dumps({**json.loads(manifests[0].read_text()), "format": 99}))
    else:

        def fail(storage: DirectoryStorage, name: str) -> bytes:
            raise OSError(errno.EIO, "Input/output error", str(storage.path / name / MANIFEST))

        monkeypatch.setattr(DirectoryStorage, "manifest", fail)
    with pytest.raises(
        ReportedError, match=r"none of 2 checkpoints in .* can be read, but one of them may still be intact: .*step-0"
    ):
        started(store, Toy(), resume=True)
    assert len(store.names()) == 2


def test_remains_of_killed_writer_are_removed_at_start(tmp_path: Path) -> None:
    store = store_for(Settings(checkpoint_dir=str(tmp_path)), Path("/elsewhere"))
    assert isinstance(store.storage, DirectoryStorage)
    (tmp_path / ".partial-step-00000007").mkdir()
    started(store, Toy(), resume=True)
    assert [path.name for path in tmp_path.iterdir()] == [WRITER]


@pytest.mark.parametrize(
    ("settings", "ranks", "images"),
    [
        (Settings(batch_per_rank=4), 1, 0),  # the same images per step: nothing to keep
        (Settings(batch_per_rank=4), 2, 4),
        (Settings(batch_per_rank=1), 3, 4),
        (Settings(global_batch=8), 2, 8),  # given: rejected later if it differs from the run's
    ],
)
def test_another_number_of_ranks_keeps_the_images_a_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Settings, ranks: int, images: int
) -> None:
    store = store_for(settings, tmp_path)
    assert with_batch_of_resumed(settings, store, ranks=ranks) == settings, (
        "without a checkpoint there is nothing to keep"
    )
    toy = Toy()
    for step in range(3):
        toy.step(0, step)
        store.save(dataclasses.replace(FRESH, total_steps=step + 1), toy.arrays())
    (tmp_path / "checkpoints" / "step-00000003" / "manifest.json").write_text("damaged")
    found = with_batch_of_resumed(settings, store, ranks=ranks)
    assert (found.global_batch, found.batch_per_rank) == (images, settings.batch_per_rank)
    said = capsys.readouterr().out
    assert ("continuing with 4 images per step, as before" in said) == (found != settings)


def test_every_name_is_a_setting_in_exactly_one_group() -> None:
    names = {field.name for field in dataclasses.fields(Settings)}
    assert set(FIXED_SETTINGS) <= names
    assert names >= FREE_SETTINGS
    assert not FREE_SETTINGS & set(FIXED_SETTINGS)


def test_stored_settings_survive_json() -> None:
    kept = checkpoint_settings(Settings(decay_epochs=(3, 6), learning_rate=0.1), 64)
    assert json.loads(json.dumps(kept)) == kept
    assert (kept["global_batch"], kept["decay_epochs"]) == (64, [3, 6])
    assert changed_settings(kept, checkpoint_settings(Settings(decay_epochs=(3, 6), learning_rate=0.1), 64)) == []


@pytest.mark.parametrize(
    ("setting", "before", "now"),
    [
        ("network", "lenet", "resnet50"),
        ("dataset", "digits", "mnist"),
        ("seed", 1, 2),
        ("train_limit", 0, 100),
        ("image_phases", "0:8/64", "0:8/32"),
    ],
)
def test_changed_fixed_setting_is_rejected_with_flag(setting: str, before: object, now: object) -> None:
    old, new = ({**checkpoint_settings(Settings(), 64), setting: value} for value in (before, now))
    flag = "--" + setting.replace("_", "-")
    with pytest.raises(SettingError, match=rf"^{flag} {now}: the run to resume had {before}; give {flag} {before}, or"):
        changed_settings(old, new)


def test_global_batch_is_compared_and_not_its_factors() -> None:
    four = checkpoint_settings(Settings(batch_per_rank=16), 64)
    two = checkpoint_settings(Settings(batch_per_rank=32), 64)
    assert changed_settings(four, two) == []
    with pytest.raises(SettingError, match="--global-batch 32: the run to resume had 64"):
        changed_settings(four, checkpoint_settings(Settings(batch_per_rank=32), 32))


def test_allowed_changes_are_reported_unless_they_have_no_effect() -> None:
    before = checkpoint_settings(Settings(), 64)
    now = checkpoint_settings(
        Settings(epochs=20, learning_rate=0.05, decay_epochs=(2, 4), keep_checkpoints=9, intra_op_threads=2), 64
    )
    assert changed_settings(before, now) == [
        "--epochs 20 (was 10)",
        "--learning-rate 0.05 (was 0.1)",
        '--decay-epochs 2,4 (was "")',
    ]


def test_settings_of_another_version_are_ignored() -> None:
    before = checkpoint_settings(Settings(), 64)
    del before["optimizer"]
    assert changed_settings({**before, "gone": 1}, checkpoint_settings(Settings(optimizer="adam"), 64)) == []
