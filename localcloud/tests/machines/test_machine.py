"""The images that machines can boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.cloud_paths import Layout
from localcloud.machines.disks import RootDisk
from localcloud.machines.file_server import ServerImage
from localcloud.machines.machine import MachineHosts, MachineImage, NoMachineError
from testbed import WORKER, snapshot


def hosts(directory: Path) -> MachineHosts:
    root = RootDisk(directory=directory / "root")
    return MachineHosts(
        images={"ami-debian": MachineImage(root=root, shown=None, accelerator="tcg")},
        server=ServerImage(root=root, accelerator="tcg"),
        layout=Layout(name="lc0", run_root=directory / "run", data_root=directory / "data"),
    )


def test_image_without_disk_is_rejected_with_list_of_images(tmp_path: Path) -> None:
    kind = hosts(tmp_path)
    with pytest.raises(
        NoMachineError, match=r"no machine can boot from the image ami-1: .* launch instances from ami-debian"
    ):
        kind.make(WORKER, snapshot().subnets[1], tmp_path / "host")
    assert not (tmp_path / "host").exists()
