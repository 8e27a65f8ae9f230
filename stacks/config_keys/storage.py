"""Keys of the shared file system and the run bucket."""

from __future__ import annotations

import dataclasses
from typing import Final

from stacks.config_keys.lustre import LustreKeys
from stacks.config_keys.value_checks import BUCKET, require_choice, require_match, require_mount_point, require_range

# Days without access before EFS can move a file; 0: never.
EFS_DAYS: Final = (0, 1, 7, 14, 30, 60, 90, 180, 270, 365)

_KEY_ARN: Final = r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(?:mrk-)?[0-9a-f-]{32,36}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class StorageKeys(LustreKeys):
    """Keys of the shared file systems and the run bucket, whose data outlive the nodes."""

    efs_mount: str = "/mnt/efs"
    """Mount point of the shared file system on all nodes."""
    file_system_id: str = ""
    """An existing EFS file system to mount; empty: create one."""
    efs_throughput: str = "bursting"
    """`bursting`: in proportion to the stored data, at no extra cost; `elastic`: as needed, with all bytes billed in
    every epoch; `provisioned`: `efs_throughput_mibps`, billed by the hour."""
    efs_throughput_mibps: int = 0
    """With `provisioned`: MiB/s, 1 to 3414."""
    efs_performance: str = "generalPurpose"
    """`generalPurpose`, or `maxIO` for more concurrent but slower operations. AWS advises against `maxIO`."""
    efs_infrequent_after_days: int = 0
    """Days without access before a file moves to Infrequent Access, which is cheaper to store but billed for reads. The
    first access moves the file back. 0: never."""
    efs_archive_after_days: int = 0
    """The same for Archive, which needs `elastic` and a lower `efs_infrequent_after_days`. 0: never."""
    efs_backup: bool = False
    """Let AWS Backup copy the shared file system every day, by its default plan. AWS bills the copies."""
    bucket_versioning: bool = True
    """Keep overwritten and deleted objects of the run bucket as older versions. The master may write to the bucket, so
    a compromised master could overwrite the copies of all runs."""
    bucket_expire_versions_days: int = 30
    """With `bucket_versioning`: days before an older version is removed. 0: never. A run's log and metrics get a new
    version each minute while it trains, so storage would grow without limit."""
    bucket_expire_runs_days: int = 0
    """Days before a run's files are removed from the run bucket. 0: never."""
    data_buckets: tuple[str, ...] = ()
    """Buckets that the nodes may list and read, for `fab stage-data s3://...`; none by default. Ranks may use a
    worker's role only if the worker booted while this or `checkpoint_buckets` contained a bucket."""
    checkpoint_buckets: tuple[str, ...] = ()
    """Buckets in which the workers may list, read, write and delete objects, for training with `--checkpoint-dir
    s3://...`; none by default."""
    wheelhouse: str = ""
    """Where the nodes look for Horovod's wheel before they build it: `s3://BUCKET/PREFIX`, `https://HOST/PATH` or a
    directory on the nodes; empty: nowhere. The nodes may list and read the bucket."""
    retain_data: bool = True
    """Keep the shared file system and the run bucket when the stack is destroyed."""
    kms_key: str = ""
    """Key that encrypts volumes, file systems, bucket and logs. Empty: AWS's own keys, which are free; `create`: a new
    key for this cluster; or the ARN of an existing key."""

    def check_storage(self) -> None:
        """Raise ConfigError for the first invalid value of these keys, including Lustre's. Booleans have no rule."""
        self.check_lustre()
        require_mount_point(self, "efs_mount")
        require_match(self, "file_system_id", r"(?:fs-[0-9a-f]{8,40})?", "fs- and hexadecimal digits, or empty")
        require_choice(self, "efs_throughput", "bursting", "elastic", "provisioned")
        require_range(self, "efs_throughput_mibps", 0, 3414)
        require_choice(self, "efs_performance", "generalPurpose", "maxIO")
        require_choice(self, "efs_infrequent_after_days", *EFS_DAYS)
        require_choice(self, "efs_archive_after_days", *EFS_DAYS)
        require_range(self, "bucket_expire_versions_days", 0, 3650)
        require_range(self, "bucket_expire_runs_days", 0, 3650)
        for name in ("data_buckets", "checkpoint_buckets"):
            require_match(self, name, BUCKET, "the name of a bucket, without s3:// and without a prefix")
        require_match(
            self,
            "wheelhouse",
            rf"(?=.{{0,1024}}$)(?:s3://{BUCKET}(?:/[\w.=-]+)*/?|https://[\w.-]+(?::[0-9]{{1,5}})?(?:/[\w.%~+-]+)*/?"
            r"|(?:/[\w.-]+)+/?)?",
            "s3://BUCKET/PREFIX, https://HOST/PATH without a password, an absolute path, or empty",
        )
        require_match(
            self, "kms_key", rf"(?:create|{_KEY_ARN})?", "create, the ARN of a key (not of an alias), or empty"
        )

    @property
    def readable_buckets(self) -> tuple[str, ...]:
        """Return the buckets that the nodes may list and read: `data_buckets`, and `wheelhouse`'s if it is in S3."""
        scheme, _, rest = self.wheelhouse.partition("://")
        return tuple(dict.fromkeys((*self.data_buckets, *([rest.partition("/")[0]] if scheme == "s3" else []))))
