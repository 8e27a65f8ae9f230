"""Debian's images: their packages, and the layer between a root and its hosts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from localcloud.hosts.debian_image import DISTRIBUTIONS, build
from localcloud.hosts.images import Bind

DEBIAN = DISTRIBUTIONS["debian-12"]
BARE = DISTRIBUTIONS["debian-12-bare"]


def test_each_release_and_package_list_has_its_own_root(tmp_path: Path) -> None:
    names = {each.root.directory(tmp_path).name.rpartition("-")[0] for each in DISTRIBUTIONS.values()}
    assert names == {"debian-12", "debian-12-bare", "debian-13"}
    assert DEBIAN.parameter == "/aws/service/debian/release/12/latest/amd64"
    command = DEBIAN.root.command(tmp_path)
    assert command[-2:] == ["bookworm", str(tmp_path)]
    (packages,) = [word for word in command if word.startswith("--include=")]
    assert {"cloud-init", "awscli", "openssh-server"} <= set(packages.removeprefix("--include=").split(","))
    assert (BARE.parameter, BARE.ami_name) == (DEBIAN.parameter, DEBIAN.ami_name), "AWS knows no bare image"
    for each in DISTRIBUTIONS.values():
        assert not {"git", "g++", "python3-dev", "python3-venv"} & set(each.root.packages)
        assert ("awscli" in each.root.packages) != each.bare


@pytest.mark.root
def test_bare_image_gets_aws_cli_stand_in_after_installation(tmp_path: Path) -> None:
    layer = tmp_path / "layer"
    layer.mkdir()
    build(layer, tmp_path / "root", BARE, (), {})
    assert not (layer / "usr/bin/aws").exists()
    hook = (layer / "etc/apt/apt.conf.d/99localcloud").read_text()
    assert "if [ -e /usr/bin/aws.debian ]; then cp /usr/lib/localcloud/aws /usr/bin/aws; fi" in hook
    assert "aws.debian --endpoint-url" in (layer / "usr/lib/localcloud/aws").read_text()


@pytest.mark.root
def test_layer_has_the_stand_ins_and_the_settings_of_the_image(tmp_path: Path) -> None:
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
