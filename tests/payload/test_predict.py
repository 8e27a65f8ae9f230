from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from payload import predict
from tests.payload.training.export.test_model_card import CARD


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "seven.png"
    Image.new("RGB", (50, 40), (200, 200, 200)).save(path)
    return path


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.png"], "one of the arguments --run-dir --model is required"),
        (["--model", "m", "--run-dir", "r", "a.png"], "not allowed with"),
        (["--model", "m"], "the following arguments are required: IMAGE"),
        (["--model", "m", "a.png", "--top", "0"], "--top: must be at least 1"),
        (["--model", "m", "a.png", "--size", "-1"], "--size: must be at least 1, not -1"),
        (["--model", "m", "a.png", "--top", "x"], "--top: must be a whole number"),
    ],
)
def test_invalid_arguments_exit_with_2_and_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        predict.main(words)
    said = capsys.readouterr().err
    assert (ended.value.code, said.count("\n")) == (2, 1)
    assert said.startswith("payload.predict: error: ")
    assert says in said


def test_unusable_files_exit_with_1_and_one_line_with_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, image: Path
) -> None:
    assert predict.main(["--model", str(tmp_path / "no-model"), str(image)]) == 1
    assert "no-model: no such file or directory" in capsys.readouterr().err
    assert predict.main(["--run-dir", str(tmp_path), str(image)]) == 1
    assert "python -m payload.export" in capsys.readouterr().err
    assert predict.main(["--model", str(tmp_path / "no-model"), str(image), str(tmp_path / "no.png")]) == 1
    said = capsys.readouterr().err
    assert (said.count("\n"), "no.png: no such file" in said) == (1, True)


@pytest.mark.tensorflow
def test_images_of_any_size_are_printed_with_their_most_probable_classes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, image: Path
) -> None:
    from payload.models.registry import network
    from payload.training.export.export_network import write_export

    model = network("lenet").build((28, 28, 1), 3)
    last = model.layers[-1]
    last.kernel.assign(np.zeros(last.kernel.shape))  # its random values might outweigh the biases
    last.bias.assign([1.0, 3.0, 2.0])
    card = dataclasses.replace(CARD, labels=("cat", "dog", "cow"), margin=1.0)
    write_export(tmp_path / "run" / "export", model, card)
    words = ["--run-dir", str(tmp_path / "run"), str(image), str(image)]
    assert predict.main([*words, "--json", "--top", "2"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["image"] == str(image)
    assert [each["number"] for each in first["classes"]] == np.argsort([-1, -3, -2])[:2].tolist()
    assert first["classes"][0]["class"] == "dog"
    assert predict.main([*words, "--top", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert [line.split()[-1] for line in lines] == ["dog", "cow", "cat"] * 2
    assert lines[1].startswith(" "), "an image is named once"
