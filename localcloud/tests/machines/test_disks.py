"""The disks of machines: their content, and when they are created again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from localcloud.hosts.debian_image import DISTRIBUTIONS
from localcloud.hosts.debian_root import ImageError
from localcloud.hosts.images import Bind
from localcloud.machines.disks import node_disk, node_files, server_disk, server_files, shown_disk

DEBIAN = DISTRIBUTIONS["debian-12"]
HERE = {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://198.18.0.1"}
MKE2FS = shutil.which("mke2fs", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
needs_mke2fs = pytest.mark.skipif(MKE2FS is None, reason="needs mke2fs: apt-get install e2fsprogs")
MAKE_ROOT = """
mkdir -p "$ROOT"/boot "$ROOT"/etc/apt "$ROOT"/usr/bin
echo kernel >"$ROOT"/boot/vmlinuz-6.1.0-cloud-amd64
echo initrd >"$ROOT"/boot/initrd.img-6.1.0-cloud-amd64
echo 'deb http://archive.example.org/debian bookworm main' >"$ROOT"/etc/apt/sources.list
echo once >>"$ROOT"/../../../made
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace mmdebstrap by a script that creates a root with a few files; return an empty cache."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/mmdebstrap"
    program.write_text(f'#!/bin/bash\nROOT="${{@: -1}}"\n{MAKE_ROOT}')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}:/usr/sbin:/sbin")
    return tmp_path / "cache"


def content(disk: Path, path: str) -> str:
    """Return the content of a file on an ext4 disk, without mounting the disk."""
    done = subprocess.run(["debugfs", "-R", f"cat {path}", str(disk)], capture_output=True, text=True, check=True)
    return done.stdout


@needs_mke2fs
def test_node_disk_contains_root_settings_and_kernel(cache: Path) -> None:
    made = node_disk(DEBIAN, HERE, cache)
    assert (made.kernel.read_text(), made.initrd.read_text()) == ("kernel\n", "initrd\n")
    assert made.archive == {"archive.example.org"}
    assert content(made.disk, "/etc/environment") == "AWS_ENDPOINT_URL=http://198.18.0.1\nAWS_REGION=us-east-1\n"
    assert "--endpoint-url" in content(made.disk, "/usr/bin/aws")
    assert sorted(path.name for path in made.directory.iterdir()) == ["archive", "disk", "initrd.img", "vmlinuz"]


@needs_mke2fs
def test_disk_is_created_once_for_same_packages_and_files(cache: Path) -> None:
    first = node_disk(DEBIAN, HERE, cache)
    assert node_disk(DEBIAN, HERE, cache) == first
    assert (cache.parent / "made").read_text() == "once\n"
    assert node_disk(DEBIAN, HERE | {"AWS_REGION": "eu-west-1"}, cache) != first
    assert server_disk(DEBIAN, cache).directory.name.startswith("debian-12-server-")


def test_every_process_has_api_endpoint_and_cloud_init_uses_ec2_metadata() -> None:
    files = node_files(DEBIAN, HERE)
    services = files["etc/systemd/system.conf.d/localcloud.conf"].text
    assert 'DefaultEnvironment="AWS_ENDPOINT_URL=http://198.18.0.1" "AWS_REGION=us-east-1"\n' in services
    assert "DefaultDeviceTimeoutSec=15min" in services, "an emulated machine finds its disks late"
    config = json.loads(files["etc/cloud/cloud.cfg.d/01_debian_cloud.cfg"].text.removeprefix("#cloud-config\n"))
    assert config["datasource_list"] == ["Ec2"]
    assert config["system_info"]["default_user"]["name"] == "admin"
    assert "network" not in config, "the network is cloud-init's to set up, by DHCP"
    assert "/sbin/mount.nfs4" not in files, "a machine mounts NFS by itself"


def test_units_are_linked_to_their_targets() -> None:
    links = {path: file.text for path, file in (node_files(DEBIAN, HERE) | server_files()).items() if file.link}
    assert links["etc/systemd/system/sysinit.target.wants/localcloud-show.service"] == "../localcloud-show.service"
    assert (
        links["etc/systemd/system/cloud-init.target.wants/localcloud-result.service"] == "../localcloud-result.service"
    )
    for path, target in links.items():
        unit = str(Path(os.path.normpath(Path("/", path).parent / target)).relative_to("/"))
        packaged = target.startswith("/lib/systemd/") or "resolve" in target
        assert packaged or unit in node_files(DEBIAN, HERE), f"{path} leads nowhere"


def test_file_server_has_nfs_versions_of_efs_and_accepts_every_port() -> None:
    files = server_files()
    assert "vers4.1=y" in files["etc/nfs.conf.d/localcloud.conf"].text
    assert "vers4.2=n" in files["etc/nfs.conf.d/localcloud.conf"].text
    assert "insecure" in files["etc/exports"].text
    assert "/dev/vdb /srv/efs ext4" in files["etc/fstab"].text


@needs_mke2fs
def test_shown_directories_are_one_disk_that_changes_with_them(cache: Path, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.mkdir()
    (shown / "word").write_text("seen\n")
    binds = (Bind(source=shown, target="/opt/here"), Bind(source=shown, target="/opt/there"))
    disk = shown_disk(binds, cache)
    assert disk is not None
    assert content(disk, "/targets") == "/opt/here\n/opt/there\n"
    assert content(disk, "/1/word") == "seen\n"
    assert shown_disk(binds, cache) == disk
    (shown / "word").write_text("seen again\n")
    assert shown_disk(binds, cache) != disk
    assert shown_disk((), cache) is None


def test_failed_disk_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = cache.parent / "bin/mke2fs"
    failing.write_text("#!/bin/sh\necho 'No space left on device' >&2; exit 1\n")
    failing.chmod(0o755)
    with pytest.raises(ImageError, match="No space left on device"):
        node_disk(DEBIAN, HERE, cache)
    assert [path for path in cache.iterdir() if path.is_dir()] == []
