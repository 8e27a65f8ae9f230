"""A Lustre scratch file system with a link that only reads, which the committed templates do not show."""

from __future__ import annotations

from tests.stacks.conftest import Variant


def test_it_has_its_own_key_and_a_bucket_shows_up_in_it(variant: Variant) -> None:
    template = variant("borrowed")
    (scratch,) = template.of("AWS::FSx::FileSystem").values()
    assert scratch["StorageCapacity"] == 1200
    assert scratch["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2", "DataCompressionType": "NONE"}
    assert "KmsKeyId" not in scratch, "a scratch file system has FSx's own key, whatever key is asked for"
    (link,) = template.of("AWS::FSx::DataRepositoryAssociation").values()
    assert "AutoExportPolicy" not in link["S3"], "files go back to the bucket on request only"
