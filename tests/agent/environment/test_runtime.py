"""The ranks' environment: its packages, its kinds, and the Horovod that is built for it."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.environment import package_fixes
from agent.environment import runtime as module
from agent.environment.horovod_build import default_cache
from agent.environment.horovod_build_settings import Settings
from agent.environment.install_step import RuntimeSetupError
from agent.environment.runtime import HorovodEnvironment, Runtime, lock_file, settings_for
from agent.environment.toolchain import NotCoveredError
from agent.environment.virtual_environment import LOCK, VirtualEnvironment
from agent.hardware.machine import Platform
from agent.preflight import nccl_log
from agent.spec.frameworks import HOROVOD_FILE
from agent.spec.node_kinds import RuntimeKind
from tools.setup import uv_program

ROOT = Path(__file__).parents[3]
GPU = Settings(operations="gpu", compute_capabilities=(90,))
HERE = Platform(system="Linux", machine="x86_64", libc="glibc-2.34", python=(3, 11))


def a_runtime(**changes: Any) -> Runtime:
    """Return a runtime with these changes."""
    made: dict[str, Any] = {"root": Path("/r"), "lock": "keras==3.15.1", "settings": Settings(), "cache": Path("/c")}
    return Runtime(**made | changes)


def locked(path: Path) -> dict[str, str]:
    """Return the versions in a lock file, by package and marker."""
    lines = [
        line.removesuffix("\\").strip() for line in path.read_text().splitlines() if "==" in line and line[0] != " "
    ]
    return dict(line.split("==", 1) for line in lines)


def test_environment_depends_on_horovods_frameworks_but_not_on_their_order() -> None:
    settings = [
        Settings(),
        Settings(frameworks=("torch",)),
        Settings(frameworks=("tensorflow", "torch")),
        GPU,
        dataclasses.replace(GPU, compute_capabilities=(80, 90)),
    ]
    made = [
        *(a_runtime(settings=each) for each in settings),
        *(
            HorovodEnvironment(root=Path("/r"), lock="keras==3.15.1", settings=each, cache=Path("/c"))
            for each in (*settings, None)
        ),
    ]
    assert len({each.fingerprint for each in made}) == 11
    reverse = dataclasses.replace(GPU, compute_capabilities=(90, 80))
    assert a_runtime(settings=reverse).fingerprint == made[4].fingerprint


@pytest.mark.parametrize(
    ("target", "name", "value"),
    [
        (package_fixes, "LINE", "other"),
        (module.custom_op, "identity", lambda: "changed"),  # type: ignore[attr-defined]
        (module, "known_inputs", lambda *_: {"patch": "other"}),
    ],
)
def test_another_custom_op_patch_or_default_is_another_runtime(
    monkeypatch: pytest.MonkeyPatch, target: object, name: str, value: object
) -> None:
    before = a_runtime().fingerprint
    monkeypatch.setattr(target, name, value)
    assert a_runtime().fingerprint != before


@pytest.mark.parametrize(
    ("machine", "settings", "name"),
    [
        ("x86_64", Settings(), "requirements.txt"),
        ("x86_64", GPU, "requirements-gpu.txt"),
        ("aarch64", Settings(), "requirements-aarch64.txt"),
    ],
)
def test_each_kind_of_node_has_a_lock_file_that_exists(machine: str, settings: Settings, name: str) -> None:
    found = lock_file(dataclasses.replace(HERE, machine=machine), settings)
    assert found.name == name
    assert found.is_file()


@pytest.mark.parametrize(
    ("machine", "settings", "words"), [("aarch64", GPU, "aarch64 with GPUs"), ("riscv64", Settings(), "riscv64")]
)
def test_missing_tensorflow_build_is_reported(machine: str, settings: Settings, words: str) -> None:
    with pytest.raises(NotCoveredError, match=f"TensorFlow has no build for {words}. Train on nodes with x86_64"):
        lock_file(dataclasses.replace(HERE, machine=machine), settings)


def test_wheelhouse_is_an_option_of_the_build_but_not_another_runtime() -> None:
    made = settings_for(RuntimeKind(processor="x86_64"), "s3://wheels/horovod")
    assert made.options[-2:] == ("--horovod-wheelhouse", "s3://wheels/horovod")
    assert a_runtime(settings=made).fingerprint == a_runtime().fingerprint


def test_one_node_builds_horovod_against_its_packages_and_the_next_installs_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "cache" / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
    built.parent.mkdir()
    built.write_text("built")
    steps: list[str] = []

    def pretend(
        self: VirtualEnvironment,
        step: str,
        command: list[str],
        *,
        environ: Mapping[str, str] | None = None,
        **_: object,
    ) -> str:
        steps.append(step)
        if "venv" in command:
            (Path(command[4]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        if "pip" in command:
            (lock,) = [Path(word) for word in command if word.endswith(LOCK)]
            steps[-1] += " with Horovod" * ("horovod==0.28.1 --hash=sha256:" in lock.read_text())
        return f"noise\n{built}" if step == "Building Horovod" else ""

    monkeypatch.setattr(VirtualEnvironment, "run", pretend)
    monkeypatch.setattr(Runtime, "download", lambda self, wheels: None)
    monkeypatch.setattr(VirtualEnvironment, "installer", a_runtime(root=tmp_path / "tools"))
    monkeypatch.setattr("agent.environment.virtual_environment.VirtualEnvironment._create", made_by_hand)
    nodes = [a_runtime(root=tmp_path / node, wheelhouse=tmp_path / "efs", report=steps.append) for node in ("1", "2")]
    for node in nodes:
        steps.clear()
        assert node.ensure() == node.python
        assert (node.site_packages / package_fixes.NAME).is_file()
        said = [step for step in steps if "/" not in step]
        last = ["uv pip with Horovod", "Building the custom TensorFlow op", "Importing the built packages"]
        # The first node also builds the op while the others wait: they may have no compiler.
        assert said == (["Building Horovod", last[1], *last] if node is nodes[0] else last)


def test_horovod_of_a_program_is_built_from_the_uploaded_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hosts without Horovod in their package index could not run Horovod's own PyTorch example."""
    (tmp_path / "brought").mkdir()
    (tmp_path / "wheels").mkdir()
    (tmp_path / "horovod.whl").touch()
    ran: list[str] = []

    def pretend(self: VirtualEnvironment, step: str, command: list[str], **_: object) -> str:
        ran[:] = command
        return str(tmp_path / "horovod.whl")

    monkeypatch.setattr(VirtualEnvironment, "run", pretend)
    lock = "--find-links brought\ntorch==2.13.0\n"
    own = HorovodEnvironment(root=tmp_path, lock=lock, program=tmp_path, settings=Settings(), cache=tmp_path)
    own.build(tmp_path / "wheels")
    assert "--sdist" not in ran
    (tmp_path / "brought" / HOROVOD_FILE).touch()
    own.build(tmp_path / "wheels")
    assert ran[ran.index("--sdist") + 1] == str(tmp_path / "brought" / HOROVOD_FILE)


def made_by_hand(self: VirtualEnvironment) -> None:
    (self.directory / "lib" / "python3.11" / "site-packages").mkdir(parents=True)


def test_nodes_train_with_the_versions_that_developers_test() -> None:
    dev = locked(ROOT / "requirements" / "dev.txt")
    node = locked(ROOT / "agent" / "environment" / "requirements.txt")
    assert node["tensorflow-cpu"] == "2.21.0"
    assert {name: dev.get(name) for name in node} == node


def test_gpu_lock_differs_only_in_tensorflow_and_cuda_libraries() -> None:
    node, gpu = (locked(ROOT / "agent" / "environment" / name) for name in ("requirements.txt", "requirements-gpu.txt"))
    assert gpu["tensorflow"] == node["tensorflow-cpu"]
    assert {name for name in gpu.keys() - node.keys() if not name.startswith("nvidia-")} == {"tensorflow"}
    assert gpu["nvidia-nccl-cu12"] == nccl_log.LOCKED
    assert {name: gpu[name] for name in gpu.keys() & node.keys()} == {
        name: version for name, version in node.items() if name != "tensorflow-cpu"
    }


def test_aarch64_lock_differs_only_in_name_of_tensorflow() -> None:
    node, other = (
        locked(ROOT / "agent" / "environment" / name) for name in ("requirements.txt", "requirements-aarch64.txt")
    )
    assert {("tensorflow" if name == "tensorflow-cpu" else name): version for name, version in node.items()} == other


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_of_aarch64_lock_has_a_wheel(python: str, tmp_path: Path) -> None:
    uv = uv_program(default_cache(os.environ))
    if not uv.is_file():
        pytest.skip(f"{uv} is missing: run `make setup`")
    platform = ["--python-platform", "aarch64-manylinux_2_28", "--python-version", python, "--only-binary", ":all:"]
    lock = ["--require-hashes", "--requirement", str(ROOT / "agent/environment/requirements-aarch64.txt")]
    command = [str(uv), "pip", "install", "--dry-run", "--target", str(tmp_path), *platform, *lock]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "error sending request" in done.stderr:
        pytest.skip(f"uv reaches no package index: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert "tensorflow==2.21.0" in done.stderr


@pytest.mark.parametrize("path", sorted([*ROOT.glob("requirements/*.txt"), *ROOT.glob("agent/environment/*.txt")]))
def test_lock_file_contains_no_address(path: Path) -> None:
    assert "://" not in path.read_text()


def test_wheel_missing_in_lock_file_is_rejected(tmp_path: Path) -> None:
    known, foreign = "a" * 64, "b" * 64
    made = a_runtime(root=tmp_path, lock=f"keras==3.15.1 --hash=sha256:{known}")
    (tmp_path / LOCK).write_text(f"horovod==0.28.1 --hash=sha256:{foreign}\nkeras==3.15.1 --hash=sha256:{foreign}\n")
    with pytest.raises(RuntimeSetupError, match=r"the SHA-256 of keras==3\.15\.1 in .* is not in the lock file"):
        made.install(tmp_path)
