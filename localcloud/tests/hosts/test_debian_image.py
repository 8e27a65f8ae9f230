"""Debian's images: what they hold, and what lies between a root and its hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from localcloud.hosts.debian_image import DISTRIBUTIONS, build
from localcloud.hosts.images import Bind

DEBIAN = DISTRIBUTIONS["debian-12"]


def test_each_release_and_list_of_packages_has_a_root_of_its_own(tmp_path: Path) -> None:
    names = {each.root.directory(tmp_path).name.rpartition("-")[0] for each in DISTRIBUTIONS.values()}
    assert names == {"debian-12", "debian-13"}
    assert DEBIAN.parameter == "/aws/service/debian/release/12/latest/amd64"
    command = DEBIAN.root.command(tmp_path)
    assert command[-2:] == ["bookworm", str(tmp_path)]
    (packages,) = [word for word in command if word.startswith("--include=")]
    assert {"cloud-init", "awscli", "openssh-server"} <= set(packages.removeprefix("--include=").split(","))


@pytest.mark.root
def test_the_layer_has_the_stand_ins_and_the_settings_of_the_image(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    bind = Bind(source=tmp_path, target="/opt/here")
    image = build(layer, tmp_path / "root", DEBIAN, (bind,), {"AWS_REGION": "us-east-1"})
    assert (image.lower, image.accounts, image.binds) == ((layer, tmp_path / "root"), False, (bind,))
    assert (layer / "etc/environment").read_text() == "AWS_REGION=us-east-1\n"
    config: Mapping[str, object] = json.loads(
        (layer / "etc/cloud/cloud.cfg.d/01_debian_cloud.cfg").read_text().removeprefix("#cloud-config\n")
    )
    assert config["datasource_list"] == ["Ec2"]
    assert config["system_info"]["default_user"]["name"] == "admin"  # type: ignore[index]
    assert not (layer / "sbin/mount.nfs4").exists(), "there is none until nfs-common is installed"
    assert (layer / "opt/here").is_dir()
    assert "aws.debian --endpoint-url" in (layer / "usr/bin/aws").read_text()
