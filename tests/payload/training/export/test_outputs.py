"""The outputs of one run on two ranks: metrics, events, confusion matrix, profile, export; and the commands on it."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.payload.data.drawings import SHAPES, drawing, drawn_labels, encoded, write_records

ROOT = Path(__file__).parents[4]
LAUNCHER = [sys.executable, "-m", "agent.launch.horovodrun", "-np", "2", "-H", "localhost:2", "--gloo"]
WANTED = [
    *("--epochs", "2", "--train-limit", "300", "--global-batch", "50", "--warmup-epochs", "0"),
    *("--pictures", "--histogram-epochs", "2", "--profile-steps", "3-4", "--confusion-matrix", "--export-onnx"),
    *("--ema-decay", "0.5"),
]

pytestmark = pytest.mark.horovod


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the digits briefly on two ranks, with all optional outputs."""
    directory = tmp_path_factory.mktemp("products") / "run"
    command = [sys.executable, "-m", "payload.train", "--recipe", "digits", "--run-dir", str(directory), *WANTED]
    done = subprocess.run(
        [*LAUNCHER, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        env={
            **os.environ,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "DEEPCDK_PAYLOAD_HASH": "ab" * 32,
            "DEEPCDK_GIT_COMMIT": "cd" * 20,
        },
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count("done: test accuracy") == 1
    return directory


@pytest.fixture(scope="module")
def tensors(run_dir: Path) -> Callable[[str], list[tuple[int, Any]]]:
    """Return a function that reads the events of one name with TensorBoard's own loader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    accumulator = EventAccumulator(str(run_dir / "events"), size_guidance={"tensors": 0})
    accumulator.Reload()
    return lambda tag: [(event.step, make_ndarray(event.tensor_proto)) for event in accumulator.Tensors(tag)]


def result(run_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run_dir / "result.json").read_text())
    return document


def test_metrics_contain_start_steps_epochs_and_end(run_dir: Path) -> None:
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    events = [record["event"] for record in records]
    assert (events[0], events[-1], events.count("epoch")) == ("start", "end", 2)
    assert records[-1]["images_per_s"] == pytest.approx(result(run_dir)["images_per_s"], rel=1e-4)
    start = records[0]
    assert (start["epochs"], start["steps_per_epoch"], start["ranks"], start["global_batch"]) == (2, 6, 2, 50)
    step = next(record for record in records if record["event"] == "step")
    assert step.keys() >= {
        *("epoch", "step", "steps_per_epoch", "images_per_s", "loss", "accuracy", "learning_rate", "eta_s"),
    }
    epochs = [record for record in records if record["event"] == "epoch"]
    assert [(record["epoch"], record["total_steps"]) for record in epochs] == [(1, 6), (2, 12)]
    assert all(record["weights_agree"] for record in epochs)
    assert {(record["global_batch"], record["image_size"]) for record in epochs} == {(50, 28)}
    assert epochs[-1]["train_loss"] < epochs[0]["train_loss"]


def test_checkpoints_are_in_the_run_directory(run_dir: Path) -> None:
    assert sorted(path.name for path in (run_dir / "checkpoints").iterdir()) == ["step-00000012", "writer.json"]


def test_curves_match_the_metrics_by_epoch_and_step(run_dir: Path, tensors: Any) -> None:
    metrics = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    epochs = [record for record in metrics if record["event"] == "epoch"]
    for tag, name in (("loss/test", "test_loss"), ("accuracy/test top 5", "test_top5_accuracy")):
        assert [step for step, _ in tensors(tag)] == [1, 2]
        assert [float(value) for _, value in tensors(tag)] == pytest.approx([r[name] for r in epochs], abs=1e-5)
    steps = [record for record in metrics if record["event"] == "step"]
    assert [float(value) for _, value in tensors("step/loss")] == pytest.approx([r["loss"] for r in steps], abs=1e-5)
    assert [step for step, _ in tensors("step/loss")] == [(r["epoch"] - 1) * 6 + r["step"] for r in steps]


def test_configuration_is_printed_as_text(tensors: Any) -> None:
    ((_, settings),), ((_, run),) = tensors("settings"), tensors("run")
    assert "| epochs | **2** | passes over the training images |" in settings.item().decode()
    assert "| ranks | 2 on localhost |" in run.item().decode()


def test_histograms_include_weights_and_gradients_of_optimizer(tensors: Any) -> None:
    ((step, kernel),) = tensors("weights/lenet/conv1/kernel")
    assert (step, kernel[:, 2].sum()) == (2, 5 * 5 * 20)
    ((_, momentum),) = tensors("optimizer/sgd/lenet_conv1_kernel_momentum")
    assert momentum[:, 2].sum() == 5 * 5 * 20


def test_pictures_show_training_images_and_filters_at_the_start_and_at_the_end(tensors: Any) -> None:
    for tag, side in (("training images", 84), ("first filters", 50)):
        (first, before), (last, after) = tensors(tag)
        assert (first, last) == (0, 2)
        shown = [np.asarray(Image.open(io.BytesIO(value[2]))) for value in (before, after)]
        assert (shown[0] != shown[1]).any()
        assert shown[0].shape[1] == 2 + 5 * (side + 2)


def test_tensorboard_serves_the_embedding_with_labels_and_thumbnails(run_dir: Path) -> None:
    from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
    from tensorboard.plugins.base_plugin import TBContext
    from tensorboard.plugins.projector.projector_plugin import ProjectorPlugin
    from werkzeug.test import Client

    events = str(run_dir / "events")
    multiplexer = EventMultiplexer({".": events})
    multiplexer.Reload()
    context = TBContext(logdir=events, data_provider=MultiplexerDataProvider(multiplexer, events))
    served = {route: Client(app) for route, app in ProjectorPlugin(context).get_plugin_apps().items()}
    (embedding,) = json.loads(served["/info"].get("/info?run=.").data)["embeddings"]
    name = embedding["tensorName"].replace(" ", "%20")
    assert embedding["tensorShape"] == [359, 500]
    labels = served["/metadata"].get(f"/metadata?run=.&name={name}").text.splitlines()
    assert labels[0] == "class\trecognized as\tright"
    assert len(labels) == 360
    sprite = served["/sprite_image"].get(f"/sprite_image?run=.&name={name}").data
    assert Image.open(io.BytesIO(sprite)).size == (19 * 28, 19 * 28)
    right = [line.endswith("\tyes") for line in labels[1:]]
    assert sum(right) / 359 == pytest.approx(result(run_dir)["test_accuracy"], abs=1e-6)


def test_profile_has_the_two_steps_of_rank_0(run_dir: Path) -> None:
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    (path,) = (run_dir / "events" / "plugins" / "profile").rglob("*.xplane.pb")
    planes = xplane_pb2.XSpace.FromString(path.read_bytes()).planes
    names = [plane.event_metadata[e.metadata_id].name for plane in planes for line in plane.lines for e in line.events]
    assert names.count("train") == 2


def test_confusion_matrix_counts_the_images_of_all_ranks_once(run_dir: Path) -> None:
    from payload.data.datasets.digits import load_digits

    found = json.loads((run_dir / "confusion.json").read_text())
    assert found["images"] == 359
    assert [sum(row) for row in found["counts"]] == np.bincount(load_digits()[1].labels).tolist()
    assert found["accuracy"] == pytest.approx(result(run_dir)["test_accuracy"], abs=1e-9)


def test_most_confident_mistakes_of_all_ranks_are_kept_with_images(run_dir: Path) -> None:
    counts = json.loads((run_dir / "confusion.json").read_text())["counts"]
    wrong = int(np.sum(counts) - np.trace(counts))
    found = json.loads((run_dir / "mistakes.json").read_text())["images"]
    assert len(found) == min(wrong, 12) > 0
    assert all(counts[int(each["class"])][int(each["recognized_as"])] for each in found)
    confidences = [each["confidence"] for each in found]
    assert confidences == sorted(confidences, reverse=True)
    assert 0.1 < confidences[-1] <= confidences[0] <= 1
    assert {Image.open(io.BytesIO(base64.b64decode(each["png"]))).size for each in found} == {(28, 28)}


def test_result_states_code_hosts_times_and_every_setting(run_dir: Path) -> None:
    found = result(run_dir)
    assert (found["payload_hash"], found["git_commit"]) == ("ab" * 32, "cd" * 20)
    assert (found["ranks"], found["hosts"], found["global_batch"]) == (2, ["localhost", "localhost"], 50)
    assert found["images_per_s"] == pytest.approx(2 * 300 / found["training_seconds"], rel=1e-3)
    assert len(found["epoch_seconds"]) == 2
    assert found["training_seconds"] <= sum(found["epoch_seconds"]) <= found["seconds"]
    assert found["settings"]["ema_decay"] == 0.5


def test_run_also_exports_onnx_and_reports_it(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from payload import evaluate
    from payload.predict import predict

    found = result(run_dir)
    assert found["exported"] == ["model.keras", "saved_model", "model.onnx"]
    assert found["onnx_refused"] is None
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28, 1), np.uint8)
    expected = predict(run_dir / "export" / "model.keras", images)
    assert predict(run_dir / "export" / "model.onnx", images) == pytest.approx(expected, abs=1e-5)
    assert evaluate.main(["--model", str(run_dir / "export" / "model.onnx")]) == 1
    assert "returns no logits, which are needed here; pass the model.keras of the same" in capsys.readouterr().err


def test_evaluate_reproduces_results_of_run(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from payload import evaluate

    began = time.monotonic()
    assert evaluate.main(["--run-dir", str(run_dir), "--json", "--confusion", str(tmp_path / "new")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["seconds"] < time.monotonic() - began
    for name in ("test_loss", "test_accuracy", "test_top5_accuracy"):
        assert found[name] == pytest.approx(result(run_dir)[name], rel=1e-5)
    assert (tmp_path / "new" / "confusion.json").read_text() == (run_dir / "confusion.json").read_text()
    pairs = [
        [(each["class"], each["recognized_as"], each["png"]) for each in json.loads(path.read_text())["images"]]
        for path in (tmp_path / "new" / "mistakes.json", run_dir / "mistakes.json")
    ]
    assert sorted(pairs[0]) == sorted(pairs[1])


def test_checkpoint_of_the_run_gives_the_same_export(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from payload import export
    from payload.training.export.classifier import load

    stopped = tmp_path / "stopped"  # like a stopped run: no result, no export
    shutil.copytree(run_dir, stopped, ignore=shutil.ignore_patterns("result.json", "export", "events"))
    assert export.main(["--run-dir", str(stopped), "--onnx", "--checkpoint", "step-00000012"]) == 0
    said = capsys.readouterr().out
    assert "lenet of step-00000012, the moving average of its weights; the probabilities of model.onnx differ" in said
    images = np.random.default_rng(0).integers(0, 256, (4, 28, 28, 1), np.uint8)
    ours, first = load(stopped), load(run_dir)
    assert (ours.probabilities(images) == first.probabilities(images)).all()
    assert ours.card is not None and first.card is not None
    assert ours.card.onnx is not None and first.card.onnx is not None
    # tf2onnx keeps counting node names within a process: a file may be some bytes longer than the one before.
    same_names = dataclasses.replace(ours.card.onnx, bytes=first.card.onnx.bytes)
    assert dataclasses.replace(ours.card, onnx=same_names) == first.card
    assert ours.card.onnx.bytes == pytest.approx(first.card.onnx.bytes, rel=1e-3)
    assert (stopped / "export" / "model.onnx").is_file()
    assert export.main(["--run-dir", str(stopped), "--checkpoint", "step-7"]) == 1
    assert "no checkpoint step-7; there are step-00000012" in capsys.readouterr().err


def test_damaged_checkpoint_is_reported_and_nothing_written_without_a_valid_one(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from payload import export

    damaged = tmp_path / "damaged"
    shutil.copytree(run_dir, damaged, ignore=shutil.ignore_patterns("result.json", "export", "events"))
    whole, cut = (damaged / "checkpoints" / name / "arrays.safetensors" for name in ("step-00000012", "step-00000013"))
    shutil.copytree(whole.parent, cut.parent)
    cut.write_bytes(whole.read_bytes()[:-1])
    assert export.main(["--run-dir", str(damaged), "--into", str(tmp_path / "into")]) == 0
    said = capsys.readouterr()
    assert "warning: skipped " in said.err and "step-00000013: damaged checkpoint" in said.err
    assert said.out.startswith(f"{tmp_path / 'into'}: lenet of step-00000012")
    shutil.copy(cut, whole)
    assert export.main(["--run-dir", str(damaged)]) == 1
    assert "no checkpoint to use; none of 2 can be read: " in capsys.readouterr().err
    assert export.main(["--run-dir", str(damaged), "--checkpoint", "step-00000012"]) == 1
    assert "bytes; choose another --checkpoint, or fetch them again with `fab fetch --ch" in capsys.readouterr().err
    assert not (damaged / "export").exists()


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on JPEG record files with images of different sizes, and write the test images as files."""
    folder = tmp_path_factory.mktemp("photographs")
    write_records(folder / "data", training=120, test=40)
    (folder / "data" / "labels.txt").write_text("\n".join(SHAPES))
    for number, label in enumerate(drawn_labels(40)):
        size = {"height": 48 + 48 * (number % 3) // 6, "width": 48 + 48 * (number % 5) // 12}
        image = drawing(int(label), **size, seed=1_000_000 + number)
        (folder / f"{number:02d}.jpg").write_bytes(encoded(image))
    command = [sys.executable, "-m", "payload.train", "--recipe", "digits", "--run-dir", str(folder / "run")]
    data = ["--dataset", "imagenet", "--data-dir", str(folder / "data"), "--image-size", "32", "--epochs", "6"]
    wanted = ["--learning-rate", "0.02", "--confusion-matrix", "--export", "--pictures"]
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run([*command, *data, *wanted], capture_output=True, text=True, cwd=ROOT, timeout=600, env=quiet)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_photos_are_classified_identically_from_files_and_records(
    photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from payload import predict

    files = [str(path) for path in sorted(photographs.glob("*.jpg"))]
    assert predict.main(["--run-dir", str(photographs / "run"), "--top", "1", "--json", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = np.zeros((4, 4), int)
    for each, label in zip(found, drawn_labels(40), strict=True):
        counts[label, each["classes"][0]["number"]] += 1
    confusion = json.loads((photographs / "run" / "confusion.json").read_text())
    assert confusion["labels"] == list(SHAPES)
    assert {each["classes"][0]["class"] for each in found} <= set(SHAPES)
    # Pillow and TensorFlow downscale images slightly differently.
    assert np.abs(counts - np.array(confusion["counts"])).sum() / 2 <= 2
    assert np.trace(counts) > 20, "not by chance, which would be 10"


def test_evaluate_reads_the_record_files_again(photographs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from payload import evaluate

    assert evaluate.main(["--run-dir", str(photographs / "run")]) == 0
    said = capsys.readouterr().out
    expected = json.loads((photographs / "run" / "result.json").read_text())
    assert expected["exported"] == ["model.keras", "saved_model"]
    assert f"accuracy        {expected['test_accuracy']:.2%}" in said
    assert f"loss            {expected['test_loss']:.4f}" in said
    assert said.startswith("lenet on 40 test images of imagenet, ")
