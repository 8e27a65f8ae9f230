"""Facts about a node: parsed from the output of programs, and shown in one line."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from agent.preflight import node_facts
from agent.preflight.node_facts import (
    MARK,
    NodeFacts,
    gather,
    main,
    parse_complaint,
    parse_visible_gpus,
    visible_gpus,
)
from tests.factories import make_node, make_spec
from tests.stand_ins import write_program

# Output of tensorflow-cpu 2.21 on a machine with a GPU driver, with both streams together.
TENSORFLOW = """\
2026-11-22 16:20:11.224517: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized
deepcdk-visible-gpus 0
"""


def test_visible_gpus_are_found_among_tensorflow_output() -> None:
    assert parse_visible_gpus(TENSORFLOW) == 0
    assert parse_visible_gpus(TENSORFLOW.replace("gpus 0", "gpus 8")) == 8
    with pytest.raises(ValueError, match="No module named 'tensorflow'"):
        parse_visible_gpus("Traceback (most recent call last):\nModuleNotFoundError: No module named 'tensorflow'\n")
    with pytest.raises(ValueError, match="no output"):
        parse_visible_gpus("")


# Output of TensorFlow's GPU builds on a machine without a driver: by absl, and by earlier releases.
CU_INIT = "failed call to cuInit: INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)"
NO_DRIVER = f"""\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795441654.999518     550 port.cc:153] oneDNN custom operations are on.
W0000 00:00:1795441655.100000     550 computation_placer.cc:177] computation placer already registered.
E0000 00:00:1795441657.237501     550 cuda_platform.cc:52] {CU_INIT}
I0000 00:00:1795441657.237600     550 cuda_diagnostics.cc:168] retrieving CUDA diagnostic information
deepcdk-visible-gpus 0
"""
NO_LIBRARY = """\
2026-11-22 16:20:11.224517: I tensorflow/core/platform/cpu_feature_guard.cc:210] This TensorFlow binary is optimized
2026-11-22 16:20:13.000001: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2343] Cannot dlopen some GPU libraries.
Skipping registering GPU devices...
deepcdk-visible-gpus 0
"""


def test_reason_for_missing_gpus_is_last_tensorflow_warning_or_error() -> None:
    assert parse_complaint(NO_DRIVER) == CU_INIT
    assert parse_complaint(NO_LIBRARY) == "Cannot dlopen some GPU libraries."
    assert parse_complaint(TENSORFLOW) == ""
    assert parse_complaint("") == ""


def test_unresponsive_framework_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "COUNT_VISIBLE_GPUS", "raise ImportError('libcudart.so.12')")
    assert visible_gpus({}) == (None, "ImportError: libcudart.so.12", "")
    monkeypatch.setattr(node_facts, "COUNT_VISIBLE_GPUS", "pass")
    assert visible_gpus({}) == (None, "TensorFlow exited without a result: no output", "")


def test_framework_is_asked_with_the_variables_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = "import os; print('deepcdk-visible-gpus ' + os.environ['CUDA_VISIBLE_DEVICES'])"
    monkeypatch.setattr(node_facts, "COUNT_VISIBLE_GPUS", ask)
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3"}) == (3, "", "")
    monkeypatch.setattr(node_facts, "COUNT_VISIBLE_GPUS", f"print({NO_DRIVER!r})")
    assert visible_gpus({}) == (0, "", CU_INIT)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an nvidia-smi that lists two GPUs in PATH."""
    write_program(tmp_path / "bin" / "nvidia-smi", "printf 'Tesla T4, 570.86.15, 15360 MiB, 0\\n%.0s' 1 2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)


@pytest.mark.full
@pytest.mark.tensorflow
@pytest.mark.usefixtures("smi")
def test_on_a_node_with_gpus_tensorflow_itself_is_asked(tmp_path: Path) -> None:
    facts = gather(tmp_path)
    assert len(facts.gpus) == 2
    assert (facts.visible_gpus, facts.framework_trouble, facts.framework_complaint) == (0, "", "")


def test_on_a_node_without_gpus_tensorflow_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_facts, "COUNT_VISIBLE_GPUS", "raise ImportError")
    monkeypatch.setattr("agent.hardware.gpus.read_info", lambda: ())
    monkeypatch.setattr(node_facts, "count_gpu_devices", lambda: 0)
    facts = gather(tmp_path)
    assert (facts.gpus, facts.visible_gpus, facts.framework_trouble) == ((), None, "")
    assert (facts.spec_sha256, facts.interface) == ("", ""), "the run is not visible here"


def test_facts_of_node_are_returned_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = make_spec(hosts=(make_node(address="127.0.0.1", interface="lo"),)).to_json()
    (tmp_path / "spec.json").write_text(spec)
    assert main([str(tmp_path)]) == 0
    facts = NodeFacts.parse("login banner\n" + capsys.readouterr().out)
    assert facts.spec_sha256 == hashlib.sha256(spec.encode()).hexdigest()
    assert facts.interface == "lo"
    assert dict(facts.versions)["python"].startswith("3.")
    assert min(facts.free_bytes, facts.shared_free_bytes) > 0


def test_free_space_is_of_written_volumes_and_not_of_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = {"/": 7 << 30, str(Path.home()): 5 << 30, "/tmp": 1 << 20}

    def disk_usage(path: os.PathLike[str] | str) -> tuple[int, int, int]:
        return shutil._ntuple_diskusage(8 << 30, 0, free[os.fspath(path)])

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    assert gather(tmp_path).free_bytes == 5 << 30
    free[str(Path.home())] = 9 << 30
    assert gather(tmp_path).free_bytes == 7 << 30


@pytest.mark.parametrize("output", ["Welcome\n", MARK + "{}", MARK + "1", f"{MARK}{{}}\n{MARK}{{}}"])
def test_invalid_facts_are_rejected(output: str) -> None:
    with pytest.raises(ValueError, match=r"[02] results instead of 1|an invalid result"):
        NodeFacts.parse(output)
