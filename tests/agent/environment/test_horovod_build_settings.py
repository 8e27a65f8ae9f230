"""The settings of the Horovod build, its environment and its fingerprint."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from agent.environment import horovod_build_settings
from agent.environment.horovod_build import add_settings, settings_from
from agent.environment.horovod_build_settings import (
    EXTERNAL_INCLUDES,
    INCLUDE,
    XLA_BUILDER,
    Settings,
    environment,
    fingerprint,
)
from agent.environment.toolchain import CudaToolkit, Toolchain
from agent.hardware.machine import Platform

HERE = Platform(system="Linux", machine="x86_64", libc="glibc-2.36", python=(3, 11))
TOOLCHAIN = Toolchain(
    platform=HERE,
    tensorflow="2.21.0",
    tensorflow_include=Path("/venv/tensorflow/include"),
    compiler="c++ (Debian 12.2.0-14) 12.2.0",
    cmake=Path("/venv/cmake/data/bin/cmake"),
    mpicxx=Path("/venv/bin/mpicxx"),
    open_mpi="mpirun (Open MPI) 4.1.8",
)
GPU = Settings(operations="gpu", cuda_home=Path("/cuda"), compute_capabilities=(80, 90))


CUDA = CudaToolkit(home=Path("/cuda"), version="12.9")


def built_with(settings: Settings, base: dict[str, str] | None = None, *, lacks_header: bool = True) -> dict[str, str]:
    """Return the build's environment with two jobs."""
    toolchain = dataclasses.replace(TOOLCHAIN, cuda=CUDA if settings.gpu else None)
    return environment(settings, toolchain, base=base or {}, jobs=2, lacks_header=lacks_header, nccl=Path("/nccl"))


def test_cpu_build_has_tensorflow_with_gloo_and_mpi_and_nothing_else() -> None:
    settings = {name: value for name, value in built_with(Settings()).items() if name.startswith("HOROVOD_")}
    assert settings == {
        "HOROVOD_WITH_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_PYTORCH": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITH_MPI": "1",
        "HOROVOD_CMAKE": "/venv/cmake/data/bin/cmake",
    }


def test_open_mpi_is_found_by_build_and_by_installed_library() -> None:
    built = built_with(Settings(), {"PATH": "/usr/bin", "LDFLAGS": "-Wl,-O1"})
    assert built["PATH"] == "/venv/bin:/usr/bin"
    assert built["LDFLAGS"] == "-Wl,-O1 -Wl,-rpath,$ORIGIN/../../../.."


def test_gpu_build_has_nccl_and_its_homes() -> None:
    # The settings of a build that compiled, linked and ran on a GPU.
    built = built_with(GPU, {"CUDA_HOME": "/another"})
    assert built["HOROVOD_GPU_OPERATIONS"] == "NCCL"
    assert built["HOROVOD_CUDA_HOME"] == built["CUDA_HOME"] == "/cuda"
    assert built["HOROVOD_NCCL_HOME"] == "/nccl"
    assert built["HOROVOD_NCCL_LINK"] == "SHARED"
    assert built["HOROVOD_BUILD_CUDA_CC_LIST"] == "80,90"
    assert built["LDFLAGS"] == "-Wl,-rpath,$ORIGIN/../../../..:$ORIGIN/../../nvidia/nccl/lib"


def test_forwarding_header_is_used_only_if_tensorflow_lacks_it() -> None:
    externals = [f"/venv/tensorflow/include/{name}" for name in EXTERNAL_INCLUDES]
    assert built_with(Settings(), lacks_header=True)["CPLUS_INCLUDE_PATH"].split(":") == [str(INCLUDE), *externals]
    assert built_with(Settings(), lacks_header=False)["CPLUS_INCLUDE_PATH"].split(":") == externals


def test_settings_left_in_the_environment_do_not_change_the_build() -> None:
    base = {"HOROVOD_GPU": "CUDA", "CPLUS_INCLUDE_PATH": "/old", "MAKEFLAGS": "-j --jobserver-auth=3,4", "HOME": "/h"}
    built = built_with(Settings(), base)
    assert "HOROVOD_GPU" not in built
    assert "/old" not in built["CPLUS_INCLUDE_PATH"]
    assert built["MAKEFLAGS"] == "-j2"
    assert built["HOME"] == "/h"


def test_header_is_in_include_folder_of_horovod() -> None:
    text = (INCLUDE / XLA_BUILDER).read_text()
    assert '#include "xla/hlo/builder/xla_builder.h"' in text
    assert "AsGpuStreamValue(Stream* stream)" in text.partition("#if HAVE_GPU")[2]


def test_settings_are_read_back_from_their_options() -> None:
    torch = Settings(frameworks=("tensorflow", "torch"))
    for settings in (Settings(), GPU, torch):
        parser = argparse.ArgumentParser()
        add_settings(parser)
        assert settings_from(parser.parse_args(settings.options)) == settings


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="operations = 'tpu': must be cpu or gpu"):
        Settings(operations="tpu")
    with pytest.raises(ValueError, match="compute_capabilities is empty"):
        Settings(operations="gpu", compute_capabilities=())
    for named in ("", "jax"):
        with pytest.raises(ValueError, match=f"frameworks = '{named}': must be tensorflow, torch or both"):
            Settings(frameworks=tuple(named.split(",")))
    with pytest.raises(ValueError, match="frameworks = '': must be tensorflow, torch or both"):
        Settings(frameworks=())


def test_pytorch_build_needs_nothing_of_tensorflow() -> None:
    torch = dataclasses.replace(TOOLCHAIN, tensorflow="", tensorflow_include=None, torch="2.13.0+cpu")
    for_torch = Settings(frameworks=("torch",))
    built = environment(for_torch, torch, base={}, jobs=2, lacks_header=False, compiler=Path("/scratch/c++"))
    assert (built["HOROVOD_WITH_PYTORCH"], built["HOROVOD_WITHOUT_TENSORFLOW"]) == ("1", "1")
    assert (built["CXX"], "CPLUS_INCLUDE_PATH" in built) == ("/scratch/c++", False)
    both = environment(Settings(frameworks=("tensorflow", "torch")), TOOLCHAIN, base={}, jobs=2, lacks_header=True)
    assert (both["HOROVOD_WITH_PYTORCH"], both["HOROVOD_WITH_TENSORFLOW"], "CXX" in both) == ("1", "1", False)


def test_wheel_depends_on_each_input_but_not_on_environment_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    change = dataclasses.replace
    found = [
        fingerprint(Settings(), TOOLCHAIN),
        fingerprint(Settings(), change(TOOLCHAIN, tensorflow="2.20.0")),
        fingerprint(Settings(), change(TOOLCHAIN, compiler="c++ 13")),
        fingerprint(Settings(), change(TOOLCHAIN, open_mpi="mpirun (Open MPI) 4.1.9")),
        *(
            fingerprint(Settings(), change(TOOLCHAIN, platform=platform))
            for platform in (change(HERE, python=(3, 12)), change(HERE, libc="2.39"), change(HERE, machine="aarch64"))
        ),
        fingerprint(Settings(frameworks=("torch",)), TOOLCHAIN),
        fingerprint(Settings(frameworks=("torch",)), change(TOOLCHAIN, torch="2.12.0")),
        fingerprint(Settings(frameworks=("tensorflow", "torch")), TOOLCHAIN),
        *(fingerprint(GPU, change(TOOLCHAIN, cuda=change(CUDA, version=version))) for version in ("12.8", "12.9")),
        fingerprint(change(GPU, compute_capabilities=(90,)), TOOLCHAIN),
    ]
    with monkeypatch.context() as patched:
        patched.setattr(horovod_build_settings, "DIGEST", "0" * 64)
        found.append(fingerprint(Settings(), TOOLCHAIN))
    with monkeypatch.context() as patched:
        patched.setattr(horovod_build_settings, "INCLUDE", tmp_path)
        (tmp_path / XLA_BUILDER).parent.mkdir(parents=True)
        (tmp_path / XLA_BUILDER).write_text("changed")
        found.append(fingerprint(Settings(), TOOLCHAIN))
    assert len(set(found)) == len(found)
    moved = change(TOOLCHAIN, tensorflow_include=Path("/elsewhere"), cmake=Path("/usr/bin/cmake"))
    assert fingerprint(Settings(), moved) == found[0]
