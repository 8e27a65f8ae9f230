from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

import pytest

from agent.errors import ReportedError
from payload.recipes.digits import DIGITS
from payload.recipes.train_config import TrainConfig
from payload.settings import GROUPS, SettingError, Settings, flag_of

DIGITS_ARGS = ["--recipe", "digits", "--run-dir", "/runs/a"]
FASHION = ["--recipe", "fashion-mnist", "--run-dir", "/r", "--data-dir", "/d"]
FAST = ["--recipe", "imagenet-fast", "--run-dir", "/r", "--data-dir", "/d"]


def test_omitted_settings_come_from_the_recipe() -> None:
    config = TrainConfig.from_argv(DIGITS_ARGS)
    assert config.recipe is DIGITS
    assert config.settings == DIGITS.settings
    assert config.run_dir == Path("/runs/a")
    assert not config.resume


def test_flag_overrides_the_recipe() -> None:
    flags = ["--epochs", "3", "--learning-rate=0.5", "--resume", "--zoom-fraction", "0", "--flip", "--no-zero-gamma"]
    config = TrainConfig.from_argv([*DIGITS_ARGS, *flags])
    expected: dict[str, Any] = {
        "epochs": 3,
        "learning_rate": 0.5,
        "zoom_fraction": 0.0,
        "flip": True,
        "zero_gamma": False,
    }
    assert config.settings == dataclasses.replace(DIGITS.settings, **expected)
    assert config.resume


OTHER = {
    "decay_epochs": ("1,2", (1, 2)),
    "rate_phases": ("0-:0.5", "0-:0.5"),
    "image_phases": ("0:32/8", "0:32/8"),
    "network": ("resnet50", "resnet50"),
    "dataset": ("synthetic", "synthetic"),
    "profile_steps": ("2-3", "2-3"),
    "checkpoint_dir": ("/elsewhere", "/elsewhere"),
    "epochs": ("7", 7),
    "checkpoint_epochs": ("7", 7),
    "augmented_epochs": ("3", 3),
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Settings)])
def test_every_setting_has_its_own_flag(name: str) -> None:
    value: Any
    declared = next(field for field in dataclasses.fields(Settings) if field.name == name)
    default, kind = getattr(DIGITS.settings, name), typing.get_type_hints(Settings)[name]
    if kind is bool:
        words, value = [f"--{'no-' if default else ''}{flag_of(name)[2:]}"], not default
    elif name in OTHER:
        text, value = OTHER[name]
        words = [flag_of(name), text]
    elif declared.metadata["choices"]:
        value = next(choice for choice in reversed(declared.metadata["choices"]) if choice != default)
        words = [flag_of(name), value]
    else:
        value = kind(0.5 if kind is float else 5)
        words = [f"{flag_of(name)}={value}"]
    assert value != default
    if name == "decay":  # the step decay also needs its epochs, so use the previous choice
        words, value = ["--decay", "constant"], "constant"
    config = TrainConfig.from_argv([*DIGITS_ARGS, *words])
    changed: dict[str, Any] = {name: value}
    if name == "batch_per_rank":
        changed |= {"global_batch_limit": Settings().global_batch_limit}
    assert config.settings == dataclasses.replace(DIGITS.settings, **changed)


def test_every_setting_has_a_one_line_description() -> None:
    for group in GROUPS:
        for field in dataclasses.fields(group):
            assert 3 < len(field.metadata["help"]) <= 110
            assert not field.metadata["help"].endswith(".")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--recipe", "digit", "--run-dir", "/r"], r"--recipe digit: unknown; did you mean digits\?"),
        ([*DIGITS_ARGS, "--epoch", "3"], r"argument --epoch: unknown; did you mean --epochs\?"),
        ([*DIGITS_ARGS, "--learnin-rate=3"], r"did you mean --learning-rate\?"),
        ([*DIGITS_ARGS, "--frobnicate"], r"argument --frobnicate: unknown\. Known: --accumulation-steps"),
        (["--recipe", "digits", "--run-dir", ""], r"^--run-dir: must not be empty$"),
        ([*DIGITS_ARGS, "--epochs", "three"], r"^--epochs: must be a whole number, not 'three'$"),
        ([*DIGITS_ARGS, "--epochs"], r"^--epochs: needs a value$"),
        (
            [*DIGITS_ARGS, "--flip=yes"],
            r"^--flip: takes no value: give --flip or --no-flip \(.*\), not 'yes'$",
        ),
        ([*DIGITS_ARGS, "--epochs", "0"], r"--epochs 0: must be 1 to 100000"),
        ([*DIGITS_ARGS, "--learning-rate", "nan"], r"^--learning-rate: must be a number, not 'nan'$"),
        ([*DIGITS_ARGS, "--learning-rate", "-1"], r"--learning-rate"),
        ([*DIGITS_ARGS, "--optimizer", "sdg"], r"--optimizer sdg: must be one of sgd, rmsprop"),
        ([*DIGITS_ARGS, "--decay-epochs", "3;4"], r"--decay-epochs: must be whole numbers separated by commas"),
        ([*DIGITS_ARGS, "--network", "resnet51"], r"--network resnet51: must be one of .*; did you mean resnet50\?"),
        ([*DIGITS_ARGS, "--global-batch", "8", "--batch-per-rank", "8"], r"not both"),
        ([*DIGITS_ARGS, "--data-dir", "/d"], r"--data-dir /d: data set digits needs no files"),
        ([*DIGITS_ARGS, "--variant", "x"], r"--variant x: recipe digits has no variants"),
        ([*FAST, "--variant", "16-node"], r"--variant 16-node: unknown; did you mean 16-nodes\?"),
        (
            [*FAST, "--learning-rate", "1"],
            r"--learning-rate 1.0: --rate-phases sets the rates: change the phases, or turn",
        ),
        ([*FAST, "--global-batch", "64"], r"--global-batch 64: --image-phases sets the sizes and batches"),
        ([*FAST, "--epochs", "60"], r"ends at epoch 28, but the run has 60"),
        (["--recipe", "fashion-mnist", "--run-dir", "/r"], r"--data-dir: data set fashion-mnist needs the directory"),
        (["--recipe", "digits"], r"--run-dir"),
        ([], r"--recipe"),
    ],
)
def test_invalid_arguments_are_rejected_with_valid_ones(arguments: list[str], message: str) -> None:
    with pytest.raises(ReportedError, match=message) as caught:
        TrainConfig.from_argv(arguments)
    assert "\n" not in str(caught.value)


def test_errors_of_flags_carry_flag_value_and_rule() -> None:
    with pytest.raises(SettingError) as caught:
        TrainConfig.from_argv([*DIGITS_ARGS, "--seed", "-1"])
    assert (caught.value.flag, caught.value.value) == ("--seed", -1)
    assert caught.value.rule == "must be 0 to 2147483647"


def test_phases_can_be_removed() -> None:
    settings = TrainConfig.from_argv([*FASHION, "--rate-phases=", "--learning-rate", "0.01"]).settings
    assert (settings.rate_phases, settings.learning_rate) == ("", 0.01)


def test_given_batch_size_has_no_limit() -> None:
    assert TrainConfig.from_argv([*DIGITS_ARGS]).settings.global_batch_limit == 128
    assert TrainConfig.from_argv([*DIGITS_ARGS, "--batch-per-rank", "32"]).settings.global_batch_limit == 1 << 24


def test_resumed_run_keeps_its_variant(tmp_path: Path) -> None:
    flags = ["--recipe", "imagenet-fast", "--run-dir", str(tmp_path), "--data-dir", "/d"]

    def variant(*further: str) -> str | None:
        found = TrainConfig.from_argv([*flags, *further], ranks=8).variant
        return found.name if found else None

    assert variant() == variant("--resume") == "1-node"
    (tmp_path / "settings.json").write_text(json.dumps({"recipe": "imagenet-fast", "variant": "4-nodes"}))
    assert (variant(), variant("--resume")) == ("1-node", "4-nodes")
    assert variant("--resume", "--variant", "8-nodes") == "8-nodes"
    for text in ('{"variant": "5-nodes"}', '{"variant": null}', "[]", "{}", "not json"):
        (tmp_path / "settings.json").write_text(text)
        assert variant("--resume") == "1-node"
