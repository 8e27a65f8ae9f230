"""The table of instance types: documented values of some types, and rules that hold for all."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from stacks import instance_types
from stacks.instance_types import InstanceType, find, names, nearest, origin, render

HEADER = ",".join(instance_types.FIELDS) + "\n"


@pytest.fixture
def fresh() -> object:
    """Clear the table's cache before and after a test that reads another table."""
    instance_types._rows.cache_clear()
    yield
    instance_types._rows.cache_clear()


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("c5.2xlarge", {"vcpus": 8, "memory_mib": 16384, "gpus": 0, "efa_interfaces": 0, "hypervisor": "nitro"}),
        ("p4d.24xlarge", {"gpus": 8, "gpu_name": "A100", "efa_interfaces": 4, "store_disks": 8}),
        ("p5.48xlarge", {"vcpus": 192, "gpus": 8, "gpu_name": "H100", "efa_interfaces": 32, "efa_first_card": 0}),
        ("p5en.48xlarge", {"gpu_name": "H200", "efa_interfaces": 16}),
        ("p6-b200.48xlarge", {"gpu_name": "B200", "efa_interfaces": 8}),
        ("p6-b300.48xlarge", {"efa_interfaces": 16, "efa_first_card": 1}),
        ("c7g.2xlarge", {"architectures": ("arm64",), "gpus": 0, "gpu_maker": ""}),
        ("g5g.xlarge", {"architectures": ("arm64",), "gpus": 1, "gpu_maker": "NVIDIA"}),
        ("t3.medium", {"placements": ("partition", "spread"), "efa_interfaces": 0}),
    ],
)
def test_known_types_match_documentation_of_aws(name: str, facts: dict[str, object]) -> None:
    found = find(name)
    assert found is not None
    assert {key: getattr(found, key) for key in facts} == facts


def test_every_line_is_valid_and_consistent() -> None:
    types = [found for found in map(find, names()) if found is not None]
    assert len(types) == len(names()) > 1000
    for each in types:
        assert each.vcpus > 0
        assert each.memory_mib > 0
        assert each.architectures
        assert bool(each.gpus) == bool(each.gpu_name) == bool(each.gpu_maker) == bool(each.gpu_memory_mib), each.name
        assert bool(each.store_disks) == bool(each.store_gb), each.name
        assert set(each.placements) <= {"cluster", "partition", "spread"}
        assert each.hypervisor in ("nitro", "xen", "")
        assert (not each.hypervisor) == (".metal" in each.name), each.name
        assert each.efa_interfaces or not each.efa_first_card, each.name


def test_table_has_its_date_and_source() -> None:
    assert f"{len(names())} EC2 instance types; written 20" in origin()
    assert " from " in origin()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("c5.2xlage", "c5.2xlarge"),
        ("p5.48xl", "p5.48xlarge"),
        ("p3.16xlarge", "p3dn.24xlarge"),
        ("x1.2xlarge", "x1.32xlarge"),
    ],
)
def test_nearest_type_has_same_family_or_generation(typed: str, meant: str) -> None:
    assert find(typed) is None
    assert nearest(typed) == meant


def test_unknown_family_has_a_nearest_type() -> None:
    assert nearest("zz9.large") in names()


def test_written_table_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: object) -> None:
    one = find("p5.48xlarge")
    assert one is not None
    other = dataclasses.replace(one, name="a1.odd", network="10, or 20 Gigabit", placements=())
    path = tmp_path / "table.csv"
    path.write_text(render([one, other], "two types"))
    monkeypatch.setattr(instance_types, "TABLE", path)
    instance_types._rows.cache_clear()
    assert names() == ("a1.odd", "p5.48xlarge")
    assert find("p5.48xlarge") == one
    assert find("a1.odd") == dataclasses.replace(other, network="10; or 20 Gigabit")


def test_source_of_table_may_have_several_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: object) -> None:
    path = tmp_path / "table.csv"
    path.write_text("# two types,\n# made up\n" + HEADER)
    monkeypatch.setattr(instance_types, "TABLE", path)
    origin.cache_clear()
    assert origin() == "two types, made up"
    origin.cache_clear()
    assert names() == ()


def test_configuration_does_not_import_instance_types() -> None:
    program = "import sys, stacks.config; print('stacks.instance_types' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_instance_types_are_compared_by_value() -> None:
    assert isinstance(find("c5.2xlarge"), InstanceType)
    assert find("c5.2xlarge") == find("c5.2xlarge")
