from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payload.settings import SettingError, Settings
from payload.settings.training import StepSpan


def test_step_decay_needs_its_epochs_in_order() -> None:
    with pytest.raises(SettingError, match="--decay step: needs --decay-epochs"):
        Settings(decay="step")
    with pytest.raises(SettingError, match="--decay-epochs 60,30: must be ascending"):
        Settings(decay="step", decay_epochs=(60, 30))


def test_settings_from_any_source_are_checked_like_flags() -> None:
    with pytest.raises(SettingError, match=r"--network resnet51: must be one of .*; did you mean resnet50"):
        Settings(network="resnet51")
    with pytest.raises(SettingError, match="--profile-steps 9-5: must be FIRST-LAST"):
        Settings(profile_steps="9-5")
    with pytest.raises(SettingError, match="--checkpoint-dir s3://my-runs: must have a prefix"):
        Settings(checkpoint_dir="s3://my-runs")


@given(st.integers(1, 10**9), st.integers(0, 10**6))
def test_written_span_is_read_back(first: int, more: int) -> None:
    assert StepSpan.parse(f"{first}-{first + more}") == StepSpan(first=first, last=first + more)
    assert StepSpan.parse(str(first)) == StepSpan(first=first, last=first)


def test_without_a_text_there_is_no_span() -> None:
    assert StepSpan.parse("") is None


@pytest.mark.parametrize("text", ["0-3", "5-4", "a-b", "3-", "-3", "1-2-3", " 1-2", "0"])
def test_invalid_span_is_rejected_with_its_flag(text: str) -> None:
    with pytest.raises(SettingError, match=r"--profile-steps .*: must be FIRST-LAST"):
        StepSpan.parse(text)
