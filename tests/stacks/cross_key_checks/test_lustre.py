"""Rules for the Lustre file system, and for mounts that would hide each other."""

from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from stacks.config_keys.lustre import FSX_THROUGHPUTS
from tests.stacks.cross_key_checks.test_cross_key_checks import keys, problems

UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
paths = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))


@given(deployment=st.sampled_from(sorted(FSX_THROUGHPUTS)), throughput=st.sampled_from([0, 50, 100, 125, 500, 1000]))
def test_each_deployment_type_accepts_only_its_own_rates(deployment: str, throughput: int) -> None:
    found = keys(fsx_capacity_gib=1200, fsx_deployment=deployment, fsx_throughput=throughput)
    assert found == ([] if throughput in FSX_THROUGHPUTS[deployment] else ["fsx_throughput"])


def test_lustre_client_requires_amazon_linux() -> None:
    values = {"worker_image_parameter": UBUNTU, "master_image_parameter": UBUNTU, "fsx_capacity_gib": 1200}
    assert keys(**values) == ["master_image_parameter", "worker_image_parameter"]
    assert keys(**{**values, "fsx_capacity_gib": 0}) == []


def test_export_to_bucket_requires_a_bucket() -> None:
    assert keys(fsx_capacity_gib=1200, fsx_export=True) == ["fsx_export"]
    assert keys(fsx_capacity_gib=1200, fsx_export=True, fsx_s3="s3://bucket") == []


@given(efs=paths, lustre=paths)
def test_mount_inside_another_mount_is_rejected(efs: str, lustre: str) -> None:
    one, other = PurePosixPath(efs), PurePosixPath(lustre)
    apart = not (one == other or one in other.parents or other in one.parents)
    found = keys(fsx_capacity_gib=1200, efs_mount=efs, fsx_mount=lustre)
    assert found == ([] if apart else ["fsx_mount"])


def test_default_mount_of_lustre_is_free_without_lustre() -> None:
    assert keys(efs_mount="/mnt/fsx") == []
    assert [problem.key for problem in problems(efs_mount="/mnt/fsx", fsx_capacity_gib=1200)] == ["fsx_mount"]
