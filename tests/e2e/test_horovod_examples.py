"""Horovod's own TensorFlow 2 examples, unmodified, on four hosts. The examples are not part of this project.

DEEPCDK_HOROVOD_EXAMPLES names the directory `examples/tensorflow2` of a checkout of Horovod's repository. Without it
these tests are skipped. The hosts cannot reach a package index or data sets. Therefore `tf-keras` is downloaded on this
machine, and generated digits replace MNIST.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from agent.environment.horovod_build import default_cache
from cluster import demo
from tests.e2e.conftest import EmbeddedCloud
from tools.setup import node_environments

EXAMPLES = os.environ.get("DEEPCDK_HOROVOD_EXAMPLES", "")
pytestmark = [
    pytest.mark.skipif(not EXAMPLES, reason="DEEPCDK_HOROVOD_EXAMPLES names no checkout of Horovod's examples"),
    pytest.mark.timeout(1800),
]
SMALL = "--model MobileNetV2 --batch-size 2 --num-batches-per-iter 1 --num-iters 2 --no-cuda"
STAND_IN = """\
import hashlib, runpy, sys
import numpy as np
import tensorflow as tf
import horovod.tensorflow as hvd


def load_data(path="mnist.npz"):
    labels = np.arange(2000, dtype="uint8") % 10
    images = np.zeros((2000, 28, 28), "uint8")
    for image, label in zip(images, labels):
        image[2 * label : 2 * label + 6, 4:24] = 200
    return (images, labels), (images[:200], labels[:200])


models = []
make, take, fit = tf.keras.Sequential.__init__, tf.data.Dataset.take, tf.keras.Model.fit
tf.keras.Sequential.__init__ = lambda self, *a, **k: (models.append(self), make(self, *a, **k))[1]
tf.keras.datasets.mnist.load_data = load_data
tf.data.Dataset.take = lambda self, count, **k: take(self, min(count, 12), **k)
tf.keras.Model.fit = lambda self, *a, **k: fit(self, *a, **{**k, "epochs": 1, "steps_per_epoch": 12})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print("weights", hashlib.sha256(b"".join(w.tobytes() for w in models[0].get_weights())).hexdigest()[:16], flush=True)
"""
"""Gives an example data and few steps, runs it unchanged, and prints its rank's final weights."""


@pytest.fixture(scope="module")
def four_hosts(cluster: EmbeddedCloud) -> EmbeddedCloud:
    cluster.fab("scale", "--nodes", "4", "--yes")
    return cluster


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("examples")
    for example in Path(EXAMPLES).glob("*.py"):
        shutil.copy(example, root)
    (root / "stand_in.py").write_text(STAND_IN)
    (root / "requirements.txt").write_text("--no-index\n--find-links wheels\n")
    python = node_environments(default_cache(os.environ))[1].python
    download = ["-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(root / "wheels"), "tf-keras==2.21.*"]
    subprocess.run([python, *download], check=True)
    return root


def train(cloud: EmbeddedCloud, project: Path, entry: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = ["--payload", str(project), "--entry", entry, *words, *demo.settings(2)]
    return cloud.laptop("fab", "train", "--nodes", "4", "--yes", *program, check=False, timeout_s=1200)


@pytest.mark.parametrize("example", ["tensorflow2_mnist.py", "tensorflow2_keras_mnist.py"])
def test_example_trains_with_keras_2_to_same_weights_on_all_ranks(
    four_hosts: EmbeddedCloud, project: Path, example: str
) -> None:
    done = train(four_hosts, project, f"stand_in.py {example}", "--keras", "2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    weights = re.findall(r"\[([0-3])\]<stdout>:weights ([0-9a-f]{16})", done.stdout)
    assert {rank for rank, _ in weights} == {"0", "1", "2", "3"}
    assert len({digest for _, digest in weights}) == 1


@pytest.mark.parametrize("example", ["tensorflow2_synthetic_benchmark.py", "tensorflow2_keras_synthetic_benchmark.py"])
def test_benchmark_example_runs_with_keras_2(four_hosts: EmbeddedCloud, project: Path, example: str) -> None:
    done = train(four_hosts, project, f"{example} {SMALL}", "--keras", "2")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"\[0\]<stdout>:Total img/sec on 4 .*: [0-9.]+", done.stdout)


def test_keras_3_example_that_would_not_average_is_rejected_at_no_cost(
    four_hosts: EmbeddedCloud, project: Path
) -> None:
    done = train(four_hosts, project, "tensorflow2_keras_mnist.py")
    assert (done.returncode, "does not average" in done.stderr, "--keras 2" in done.stderr) == (1, True, True)


def test_other_examples_with_keras_3_fail_with_fix(four_hosts: EmbeddedCloud, project: Path) -> None:
    done = train(four_hosts, project, "stand_in.py tensorflow2_mnist.py", "--keras", "3")
    assert done.returncode == 1
    assert "DistributedGradientTape needs TensorFlow variables" in done.stdout
    assert "--keras 2" in done.stdout
