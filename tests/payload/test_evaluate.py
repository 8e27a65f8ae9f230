from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from payload import evaluate
from payload.data import bucket_download
from payload.settings import Settings
from tests.payload.training.export.test_model_card import CARD


def card(**changes: Any) -> dict[str, Any]:
    settings = dataclasses.asdict(Settings(dataset="fashion-mnist"))
    plain = dataclasses.replace(CARD, dataset="fashion-mnist", data_dir="/absent/data", settings=settings)
    return {**dataclasses.asdict(plain), **changes}


def export(folder: Path, document: dict[str, Any] | None) -> Path:
    (folder / "model.keras").write_bytes(b"not looked at")
    if document is not None:
        (folder / "model.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("words", [[], ["--model", "m", "--batch", "-1"], ["--model", "m", "extra"]])
def test_invalid_arguments_exit_with_2_and_one_line(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        evaluate.main(words)
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("payload.evaluate: error: ")


def test_missing_data_is_reported_before_tensorflow_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate.main(["--model", str(export(tmp_path, card()))]) == 1
    assert "/absent/data" in capsys.readouterr().err
    assert evaluate.main(["--model", str(tmp_path), "--data-dir", str(tmp_path / "elsewhere")]) == 1
    assert "elsewhere" in capsys.readouterr().err


def test_bucket_named_by_model_is_not_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[object] = []

    def copied(address: str) -> Path:
        reads.append(address)
        return tmp_path / "absent"

    monkeypatch.setattr(bucket_download, "local_directory", copied)
    folder = str(export(tmp_path, card(data_dir="s3://others/x\x1b[2J")))
    assert evaluate.main(["--model", folder]) == 1
    said = capsys.readouterr().err
    assert "the model's run read 's3://others/x\\x1b[2J'" in said
    assert "pass this address as --data-dir" in said
    assert "\x1b" not in said
    assert reads == []
    assert evaluate.main(["--model", folder, "--data-dir", "s3://mine/x"]) == 1
    assert reads == ["s3://mine/x"]
    export(tmp_path, card(data_dir="/absent/data"))
    assert evaluate.main(["--model", folder]) == 1
    assert "reading data from '/absent/data', as the model's run did" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (None, "model.json is missing"),
        (card(settings={"epochs": 0}), "model.json: --epochs 0: must be 1 to"),
        (card(settings={"epochs": "ten"}), "model.json: a value has the wrong type"),
        (card(settings={"color": 1}), "color"),
    ],
)
def test_model_without_data_set_is_rejected_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: dict[str, Any] | None, says: str
) -> None:
    assert evaluate.main(["--model", str(export(tmp_path, document))]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), says in said) == (1, True)
