"""Facts about a node's runtime."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.environment import default_controller
from agent.environment import runtime as module
from agent.environment.horovod_build import default_cache
from agent.environment.horovod_build_settings import Settings
from agent.environment.runtime import (
    Runtime,
    RuntimeBuilder,
    download_command,
    lock_file,
    main,
    options_for,
    runtime_for,
)
from agent.environment.toolchain import NotCoveredError, Platform
from agent.environment.virtual_environment import RuntimeSetupError, VirtualEnvironment
from agent.files.build_once import COMPLETE
from agent.spec.kinds import RuntimeKind
from tools.setup import uv_program

ROOT = Path(__file__).parents[3]
GPU = Settings(operations="gpu", compute_capabilities=(90,))
HERE = Platform(system="Linux", machine="x86_64", libc="glibc-2.34", python=(3, 11))


def a_runtime(root: Path = Path("/opt/runtime"), *, lock: str = "keras==3.15.1", here: Platform = HERE) -> Runtime:
    """Return the runtime for a lock file and a platform."""
    return runtime_for(root, lock=lock, settings=Settings(), here=here, header="header")


def a_builder(runtime: Runtime, tmp_path: Path) -> RuntimeBuilder:
    """Return a builder without uv and wheelhouse."""
    return RuntimeBuilder(
        runtime=runtime,
        requirements=tmp_path / "lock.txt",
        settings_arguments=(),
        gpu=False,
        uv=None,
        wheelhouse=None,
        cache=tmp_path / "cache",
        environ=os.environ,
        report=lambda line: None,
    )


def locked(path: Path) -> dict[str, str]:
    """Return the versions that a lock file names, by package and marker."""
    lines = [
        line.removesuffix("\\").strip() for line in path.read_text().splitlines() if "==" in line and line[0] != " "
    ]
    return dict(line.split("==", 1) for line in lines)


def test_another_lock_file_python_or_platform_is_another_runtime() -> None:
    others = [
        a_runtime(lock="keras==3.15.2"),
        a_runtime(here=dataclasses.replace(HERE, python=(3, 12))),
        a_runtime(here=dataclasses.replace(HERE, libc="glibc-2.36")),
        runtime_for(Path("/r"), lock="keras==3.15.1", settings=GPU, here=HERE, header="header"),
        runtime_for(Path("/r"), lock="keras==3.15.1", settings=Settings(), here=HERE, header="changed"),
    ]
    assert len({runtime.fingerprint for runtime in [a_runtime(), *others]}) == 6


def test_a_runtime_for_gpus_that_was_made_without_links_is_not_taken_for_one_that_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def both() -> list[str]:
        found = [
            runtime_for(Path("/r"), lock="", settings=each, here=HERE, header="header") for each in (GPU, Settings())
        ]
        return [runtime.fingerprint for runtime in found]

    with_gpus, without = both()
    monkeypatch.setattr(module.gpu_libraries, "OPENED", ())  # type: ignore[attr-defined]
    assert both() == [both()[0], without]
    assert both()[0] != with_gpus


def test_another_custom_op_is_another_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    before = a_runtime().fingerprint
    monkeypatch.setattr(module.custom_op, "identity", lambda: "changed")  # type: ignore[attr-defined]
    assert a_runtime().fingerprint != before


def test_gpus_of_other_compute_capabilities_are_another_runtime_in_whatever_order() -> None:
    def found(*capabilities: int) -> str:
        settings = Settings(operations="gpu", compute_capabilities=capabilities)
        return runtime_for(Path("/r"), lock="keras", settings=settings, here=HERE, header="header").fingerprint

    assert found(80, 90) == found(90, 80)
    assert len({found(80), found(90), found(80, 90)}) == 3


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
def test_where_tensorflow_has_no_build_that_is_said(machine: str, settings: Settings, words: str) -> None:
    with pytest.raises(NotCoveredError, match=f"TensorFlow has no build for {words}. Train on nodes with x86_64"):
        lock_file(dataclasses.replace(HERE, machine=machine), settings)


def test_a_kind_of_hosts_is_told_to_the_runtime_by_options() -> None:
    assert options_for(RuntimeKind(processor="aarch64")) == ()
    kind = RuntimeKind(processor="x86_64", has_gpus=True, capabilities=(80, 90))
    assert options_for(kind) == ("--operations", "gpu", "--cc", "80,90")


def test_a_runtime_for_gpus_must_have_nccl(tmp_path: Path) -> None:
    builder = a_builder(a_runtime(tmp_path), tmp_path)
    assert "nccl_built()" in dataclasses.replace(builder, gpu=True)._check
    assert "nccl_built()" not in builder._check


def test_a_comment_in_the_lock_file_does_not_matter() -> None:
    assert a_runtime(lock="# by uv\nkeras==3.15.1\n    # via -c dev.txt").fingerprint == a_runtime().fingerprint


def test_the_same_inputs_are_the_same_runtime_under_any_root() -> None:
    assert a_runtime(Path("/home/cache")).fingerprint == a_runtime(Path("/opt/runtime")).fingerprint


def test_a_complete_runtime_is_used_as_it_is_even_when_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = a_runtime(tmp_path)
    runtime.directory.mkdir()
    (runtime.directory / COMPLETE).touch()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert a_builder(runtime, tmp_path).ensure() == tmp_path / runtime.fingerprint / "bin" / "python"


def test_a_read_only_root_without_the_runtime_says_which_ones_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0123456789abcdef").mkdir()
    (tmp_path / "0123456789abcdef" / COMPLETE).touch()
    runtime = a_runtime(tmp_path)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(
        RuntimeSetupError, match=rf"read-only and has no runtime {runtime.fingerprint}.*0123456789abcdef"
    ):
        a_builder(runtime, tmp_path).ensure()


def test_an_incomplete_runtime_is_removed_and_a_failed_one_is_not_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = a_runtime(tmp_path / "root")
    runtime.directory.mkdir(parents=True)
    (runtime.directory / "left-over").touch()
    steps: list[str] = []

    def fail_late(self: VirtualEnvironment, step: str, command: list[str], *, quiet: bool = False) -> str:
        steps.append(step)
        if step == "Building Horovod":
            raise RuntimeSetupError("no compiler")
        return ""

    monkeypatch.setattr(VirtualEnvironment, "run", fail_late)
    with pytest.raises(RuntimeSetupError, match="no compiler"):
        a_builder(runtime, tmp_path).ensure()
    assert steps == ["Making a virtual environment", "Installing", "Building Horovod"]
    assert not (runtime.directory / "left-over").exists()
    assert not runtime.complete


def test_what_a_build_unpacks_lies_beside_the_runtime_and_not_in_tmp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, given = a_runtime(tmp_path / "root"), list[Path]()

    def run(command: list[str], *, env: dict[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        given.append(Path(env["TMPDIR"]))
        assert given[-1].is_dir()
        return subprocess.CompletedProcess(command, 0 if len(given) < 3 else 1, "no compiler\n")

    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(RuntimeSetupError, match="no compiler"):
        a_builder(runtime, tmp_path).ensure()
    assert given == [tmp_path / "root" / f"{runtime.fingerprint}.tmp"] * 3
    assert not given[0].exists()


def test_one_node_fills_the_wheelhouse_and_the_next_only_installs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "cache" / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl"
    built.parent.mkdir()
    built.touch()
    steps: list[str] = []
    kept: list[str] = []

    def pretend(self: VirtualEnvironment, step: str, command: list[str], *, quiet: bool = False) -> str:
        steps.append(step)
        if "agent.environment.custom_op" in command:
            kept.append(command[-1])
        if step == "Downloading wheels":
            Path(command[-1]).mkdir(parents=True)
        if step == "Making a virtual environment":
            (Path(command[-1]) / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        return f"noise\n{built}" if step == "Building Horovod" else ""

    monkeypatch.setattr(VirtualEnvironment, "run", pretend)
    for node in ("first", "second"):
        runtime = a_runtime(tmp_path / node)
        steps.append(node)
        builder = dataclasses.replace(a_builder(runtime, tmp_path), wheelhouse=tmp_path / "efs")
        assert builder.ensure() == runtime.python
        assert runtime.complete
        assert (runtime.directory / "lib/python3.11/site-packages" / default_controller.NAME).is_file()
    made = "Making a virtual environment"
    wheel, operation = f"Installing {built.name}", "Building our custom TensorFlow op"
    last = "Importing what was installed"
    first = ["first", made, "Downloading wheels", "Installing", "Building Horovod", operation, wheel, last]
    assert steps == [*first, "second", made, "Installing", operation, wheel, last]
    # Both look for the operation where the first one leaves it.
    assert kept == [str(tmp_path / "efs" / a_runtime(tmp_path).fingerprint)] * 2


def test_wheels_are_downloaded_by_hash() -> None:
    command = download_command(python=Path("/r/bin/python"), requirements=Path("/p/lock.txt"), destination=Path("/w"))
    assert {"--require-hashes", "--only-binary"} < set(command)


def test_path_prints_what_ensure_would_and_makes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "root"
    assert main(["path", "--root", str(root)]) == 0
    printed = Path(capsys.readouterr().out.strip())
    assert printed.parent.parent.parent == root
    assert not root.exists()


def test_the_settings_reach_the_horovod_build_unchanged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made: list[RuntimeBuilder] = []

    def record(self: RuntimeBuilder) -> Path:
        made.append(self)
        return self.runtime.python

    monkeypatch.setattr(RuntimeBuilder, "ensure", record)
    assert main(["ensure", "--root", str(tmp_path), "--operations", "gpu", "--cc", "90", "--nccl-home", "/nccl"]) == 0
    arguments = made[0].settings_arguments
    assert arguments[:2] == ("--operations", "gpu")
    assert arguments[-2:] == ("--nccl-home", "/nccl")
    assert "90" in arguments
    assert made[0].requirements.name == "requirements-gpu.txt"


def test_nodes_train_with_the_versions_that_developers_test() -> None:
    dev = locked(ROOT / "requirements" / "dev.txt")
    node = locked(ROOT / "agent" / "environment" / "requirements.txt")
    assert node["tensorflow-cpu"] == "2.21.0"
    assert {name: dev.get(name) for name in node} == node


def test_the_gpu_lock_differs_in_tensorflow_and_its_cuda_libraries_alone() -> None:
    node, gpu = (locked(ROOT / "agent" / "environment" / name) for name in ("requirements.txt", "requirements-gpu.txt"))
    assert gpu["tensorflow"] == node["tensorflow-cpu"]
    assert {name for name in gpu.keys() - node.keys() if not name.startswith("nvidia-")} == {"tensorflow"}
    assert {name: gpu[name] for name in gpu.keys() & node.keys()} == {
        name: version for name, version in node.items() if name != "tensorflow-cpu"
    }


def test_the_aarch64_lock_differs_in_the_name_of_tensorflow_alone() -> None:
    node, other = (
        locked(ROOT / "agent" / "environment" / name) for name in ("requirements.txt", "requirements-aarch64.txt")
    )
    assert {("tensorflow" if name == "tensorflow-cpu" else name): version for name, version in node.items()} == other


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_all_that_the_aarch64_lock_names_has_a_wheel_for_it(python: str, tmp_path: Path) -> None:
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
def test_a_lock_file_names_no_address(path: Path) -> None:
    assert "://" not in path.read_text()


def test_the_module_needs_the_standard_library_alone() -> None:
    command = [
        sys.executable,
        "-I",
        "-S",
        "-c",
        "import sys; sys.path.insert(0, '.'); import agent.environment.runtime",
    ]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
