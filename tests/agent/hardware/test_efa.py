"""EFA devices: their number, the domains that libfabric reports, and the location of NCCL's plug-in."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.hardware import efa

# Output of `fi_info -p efa`: several endpoints per device.
FI_INFO = """\
provider: efa
    fabric: efa
    domain: rdmap0s6-rdm
    version: 122.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap0s6-dgrm
    version: 122.0
    type: FI_EP_DGRAM
    protocol: FI_PROTO_EFA
provider: efa
    fabric: efa
    domain: rdmap0s6-rdm
"""


def device(root: Path, name: str, driver: str) -> None:
    """Create one device of the kernel's list, with its driver linked as in sysfs."""
    there = root / "sys/devices" / name
    (root / "sys/drivers" / driver).mkdir(parents=True, exist_ok=True)
    there.mkdir(parents=True)
    (there / "driver").symlink_to(root / "sys/drivers" / driver)
    listed = root / "sys/class/infiniband" / name
    listed.mkdir(parents=True)
    (listed / "device").symlink_to(there)


def plugin(root: Path, folder: str) -> Path:
    there = root / folder
    there.mkdir(parents=True)
    (there / efa.PLUGIN).touch()
    return there


def test_devices_are_counted_by_driver_not_name(tmp_path: Path) -> None:
    assert efa.count_devices(tmp_path) == 0
    device(tmp_path, "rdmap16s27", "efa")
    device(tmp_path, "efa_0", "efa")
    device(tmp_path, "mlx5_0", "mlx5_core")
    assert efa.count_devices(tmp_path) == 2


@pytest.mark.parametrize("folder", ["opt/amazon/ofi-nccl/lib/x86_64-linux-gnu", "opt/aws-ofi-nccl/lib"])
def test_plugin_and_libfabric_are_first_on_library_path(tmp_path: Path, folder: str) -> None:
    device(tmp_path, "rdmap16s27", "efa")
    there = plugin(tmp_path, folder)
    (tmp_path / "opt/amazon/efa/lib64").mkdir(parents=True)
    path = efa.plugin_variables({"LD_LIBRARY_PATH": "/mine"}, tmp_path)
    assert path == {"LD_LIBRARY_PATH": f"{there}:{tmp_path}/opt/amazon/efa/lib64:/mine"}


def test_node_without_devices_or_plug_in_keeps_its_path(tmp_path: Path) -> None:
    plugin(tmp_path, "opt/amazon/ofi-nccl/lib")
    assert efa.plugin_variables({}, tmp_path) == {}
    other = tmp_path / "other"
    device(other, "rdmap16s27", "efa")
    assert efa.plugin_variables({"LD_LIBRARY_PATH": "/mine"}, other) == {}


def test_efa_domains_are_counted_once_each() -> None:
    assert efa.parse_domains(FI_INFO) == ("rdmap0s6-rdm", "rdmap0s6-dgrm")
    assert efa.parse_domains("fi_getinfo: -61 (No data available)\n") == ()
