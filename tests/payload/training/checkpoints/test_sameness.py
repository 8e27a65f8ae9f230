from __future__ import annotations

import dataclasses
import json

import pytest

from payload.settings import SettingError, Settings
from payload.training.checkpoints.sameness import FREE, SAME, changes, checkpoint_settings


def test_every_name_is_a_setting_and_none_is_both() -> None:
    names = {field.name for field in dataclasses.fields(Settings)}
    assert set(SAME) <= names
    assert names >= FREE
    assert not FREE & set(SAME)


def test_what_a_checkpoint_keeps_survives_json() -> None:
    kept = checkpoint_settings(Settings(decay_epochs=(3, 6), learning_rate=0.1), 64)
    assert json.loads(json.dumps(kept)) == kept
    assert (kept["global_batch"], kept["decay_epochs"]) == (64, [3, 6])
    assert changes(kept, checkpoint_settings(Settings(decay_epochs=(3, 6), learning_rate=0.1), 64)) == []


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
def test_what_must_be_the_same_is_refused_by_its_flag(setting: str, before: object, now: object) -> None:
    old, new = ({**checkpoint_settings(Settings(), 64), setting: value} for value in (before, now))
    flag = "--" + setting.replace("_", "-")
    with pytest.raises(SettingError, match=rf"^{flag} {now}: the run to resume had {before}; give {flag} {before}, or"):
        changes(old, new)


def test_the_global_batch_is_compared_and_not_how_it_comes_about() -> None:
    four = checkpoint_settings(Settings(batch_per_rank=16), 64)
    two = checkpoint_settings(Settings(batch_per_rank=32), 64)
    assert changes(four, two) == []
    with pytest.raises(SettingError, match="--global-batch 32: the run to resume had 64"):
        changes(four, checkpoint_settings(Settings(batch_per_rank=32), 32))


def test_what_may_change_is_said_unless_it_changes_nothing() -> None:
    before = checkpoint_settings(Settings(), 64)
    now = checkpoint_settings(
        Settings(epochs=20, learning_rate=0.05, decay_epochs=(2, 4), keep_checkpoints=9, intra_op_threads=2), 64
    )
    assert changes(before, now) == [
        "--epochs 20 (was 10)",
        "--learning-rate 0.05 (was 0.1)",
        "--decay-epochs 2,4 (was )",
    ]


def test_settings_of_another_version_are_left_aside() -> None:
    before = checkpoint_settings(Settings(), 64)
    del before["optimizer"]
    assert changes({**before, "gone": 1}, checkpoint_settings(Settings(optimizer="adam"), 64)) == []
