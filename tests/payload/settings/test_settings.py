from __future__ import annotations

import pytest

from payload.settings import SettingError, Settings


def test_a_step_decay_needs_its_epochs_in_order() -> None:
    with pytest.raises(SettingError, match="--decay step: needs the epochs"):
        Settings(decay="step")
    with pytest.raises(SettingError, match="--decay-epochs 60,30: must rise"):
        Settings(decay="step", decay_epochs=(60, 30))


def test_settings_from_anywhere_are_checked_as_flags_are() -> None:
    with pytest.raises(SettingError, match=r"--network resnet51: must be one of .*; did you mean resnet50"):
        Settings(network="resnet51")
    with pytest.raises(SettingError, match="--profile-steps 9-5: must be FIRST-LAST"):
        Settings(profile_steps="9-5")
    with pytest.raises(SettingError, match="--checkpoint-dir s3://my-runs: name a prefix"):
        Settings(checkpoint_dir="s3://my-runs")
