"""File systems and disks besides the shared file system: Lustre and the instance store."""

from __future__ import annotations

import pytest

from stacks.user_data import user_data
from tests.stacks.boot.nodelab import Lab, Node, booted
from tests.waiting import eventually

LUSTRE = "fs-01234567.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh"


def test_watcher_sets_read_ahead_recommended_for_efs(lab: Lab) -> None:
    node = booted(lab.node("worker", 1))
    ahead = node.root / "sys/class/bdi/0:52/read_ahead_kb"
    ahead.parent.mkdir(parents=True)
    ahead.write_text("128\n")
    watcher = node.registry("watch", DEEPCDK_PAUSE_S="0.05")
    try:
        eventually(lambda: ahead.read_text() == "15360\n")
    finally:
        watcher.terminate()
        watcher.wait(timeout=60)


def with_lustre(lab: Lab, role: str) -> Node:
    return lab.node(role, 1, lustre=LUSTRE, lustre_mount="/mnt/fsx")


@pytest.mark.parametrize("place", ["mnt/efs", "mnt/fsx"])
def test_failed_mount_at_reboot_is_retried_until_it_succeeds(lab: Lab, place: str) -> None:
    node = booted(with_lustre(lab, "worker"))
    (node.root / place).unlink()
    (node.root / place).mkdir()
    entries = lab.owners()
    lab.silence("deeplearning-worker1", 9)
    failed, _ = node.refresh(LAB_EFS="")
    assert failed != 0
    assert (lab.owners(), list((node.root / place).iterdir())) == (entries, [])
    status, said = node.refresh()
    assert (status, (node.root / place).is_symlink()) == (0, True), said


def test_missing_mount_without_fstab_entry_fails_and_existing_mount_is_kept(lab: Lab) -> None:
    node = booted(lab.node("worker", 1))
    (node.root / "etc/fstab").unlink()
    before = node.text("mounts")
    assert node.refresh()[0] == 0
    assert node.text("mounts") == before
    (node.root / "mnt/efs").unlink()
    (node.root / "mnt/efs").mkdir()
    assert node.refresh()[0] != 0
    assert list((node.root / "mnt/efs").iterdir()) == []


def test_failed_mount_at_boot_does_not_prevent_start_of_watcher(lab: Lab) -> None:
    node = lab.node("worker", 1)
    for folder in ("run/systemd/system", "etc/systemd/system"):
        (node.root / folder).mkdir(parents=True)
    booted(node)
    unit = node.text("etc/systemd/system/deepcdk-registry.service")
    assert "Restart=always\nRestartSec=5\n" in unit
    assert "RequiresMountsFor" not in unit, "systemd starts nothing whose mount has failed, and does not try again"


def test_lustre_is_mounted_in_addition_to_shared_file_system(lab: Lab) -> None:
    node = booted(with_lustre(lab, "worker"))
    mounts = node.text("mounts").splitlines()
    assert mounts[1:] == [f"-t lustre -o relatime,flock,nosuid,nodev {LUSTRE} {node.root}/mnt/fsx"]
    assert f"{LUSTRE} /mnt/fsx lustre relatime,flock,nosuid,nodev,_netdev 0 0\n" in node.text("etc/fstab")
    assert node.text("etc/profile.d/deeplearning-fsx.sh") == "export FSX_MOUNT=/mnt/fsx\n"
    assert "--success true" in node.text("signals")


def test_second_run_mounts_lustre_once(lab: Lab) -> None:
    node = booted(with_lustre(lab, "master"))
    before = node.files()
    booted(node)
    assert node.files() == before
    assert node.text("mounts").count("-t lustre ") == 1


def test_unreachable_lustre_file_system_fails_boot_and_is_reported(lab: Lab) -> None:
    node = with_lustre(lab, "worker")
    (node.commands / "mount").write_text('#!/bin/sh\n[ "$2" != lustre ] && rmdir "$6" && ln -s "$LAB_EFS" "$6"\n')
    status, said = node.boot()
    assert status != 0
    assert f"failed: mounting the Lustre file system {LUSTRE}" in said
    assert node.text("signals").startswith("--success false --reason mounting the Lustre file system")


def test_user_data_without_lustre_does_not_mention_it(lab: Lab) -> None:
    text = user_data(lab.node("worker", 2).settings)
    assert "LUSTRE" not in text
    assert "' registry firewall worker leftovers node || exit" in text
    masters = user_data(with_lustre(lab, "master").settings)
    assert "' registry firewall master shared consoles lustre node || exit" in masters


def scratched(lab: Lab, disks: str) -> Node:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    status, said = node.boot(LAB_DISKS=disks)
    assert status == 0, said
    return node


STORE = "/dev/nvme{}n1 Amazon EC2 NVMe Instance Storage\n"
EBS = "/dev/nvme0n1 Amazon Elastic Block Store\n"


def test_disks_of_instance_store_are_striped(lab: Lab) -> None:
    node = scratched(lab, EBS + STORE.format(1) + STORE.format(2))
    assert node.text("disks").splitlines() == [
        "mdadm --create /dev/md/scratch --run --force --level=0 --raid-devices=2 /dev/nvme1n1 /dev/nvme2n1",
        "mkfs.xfs -q -f /dev/md/scratch",
    ]
    assert f"-o noatime,nosuid,nodev /dev/md/scratch {node.root}/mnt/scratch" in node.text("mounts")
    assert (node.root / "mnt/scratch").stat().st_mode & 0o7777 == 0o1777
    assert "UUID=0123-4567 /mnt/scratch xfs noatime,nosuid,nodev,nofail 0 0\n" in node.text("etc/fstab")


def test_single_disk_is_not_striped(lab: Lab) -> None:
    node = scratched(lab, EBS + STORE.format(1))
    assert node.text("disks").splitlines() == ["mkfs.xfs -q -f /dev/nvme1n1"]


def test_scratch_without_disks_is_a_directory_and_reported(lab: Lab) -> None:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    status, said = node.boot(LAB_DISKS=EBS)
    assert status == 0
    assert "no instance store: /mnt/scratch is on the root volume" in said
    assert (node.root / "mnt/scratch").is_dir()
    assert node.text("disks") == ""
    assert "scratch" not in node.text("etc/fstab")


def test_disks_striped_by_deep_learning_image_are_kept(lab: Lab) -> None:
    node = lab.node("worker", 1, scratch="/mnt/scratch")
    (node.root / "opt/dlami").mkdir(parents=True)
    (node.root / "opt/dlami/nvme").symlink_to(node.root / "var")  # the lab's way to mark a mount point
    status, said = node.boot(LAB_DISKS=STORE.format(1) + STORE.format(2))
    assert status == 0, said
    assert node.text("disks") == ""
    assert f"--bind -o nosuid,nodev {node.root}/opt/dlami/nvme {node.root}/mnt/scratch" in node.text("mounts")
    assert "/opt/dlami/nvme /mnt/scratch none bind,nosuid,nodev,nofail 0 0\n" in node.text("etc/fstab")
