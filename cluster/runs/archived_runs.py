"""Read runs from the live cluster, or from the copies in its S3 bucket if the cluster is gone."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.spec.run_id import is_run_id
from agent.spec.run_states import RECORD_FILE
from cluster import master_answers as answers
from cluster.aws.errors import aws_errors
from cluster.errors import DeepcdkError, NoStackError
from cluster.ssh import fetch as fetching
from cluster.ssh.fetch import Fetched, atomic_directory
from cluster.ssh.transfer_on_master import EntryError
from cluster.terminal.output import print_note
from cluster.terminal.status_line import doing
from stacks.config import CLUSTER_TAG

if TYPE_CHECKING:
    from cluster.aws.client import Aws
    from cluster.session import Session

PREFIX: Final = "runs/"
AT_ONCE: Final = 8
MAX_RECORD_BYTES: Final = 32 << 20
"""Maximum size of a run's record. A larger record counts as damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Archive:
    """The archived runs of a cluster, in the buckets that it left: one for each deployment that kept its data."""

    aws: Aws
    buckets: tuple[str, ...]

    def __str__(self) -> str:
        """Return the S3 locations of the archived runs."""
        return ", ".join(f"s3://{bucket}/{PREFIX}" for bucket in self.buckets)

    def runs(self) -> list[dict[str, Any]]:
        """Return the last archived state of each run, oldest first. Runs without a readable record are left out. Raises
        AwsError.
        """
        with doing("reading the bucket"), concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
            records = list(pool.map(lambda place: self._record(*place), self._places()))
        return [record["state"] for record in records if record]

    def record(self, run_id: str = "") -> dict[str, Any]:
        """Return the record of a run; "" selects the newest run. Raises DeepcdkError without such a run or a readable
        record.
        """
        with doing("reading the bucket"):
            bucket, chosen = self._find(run_id)
            record = self._record(bucket, chosen)
        if record is None:
            raise DeepcdkError(
                f"{bucket} has no complete record of run {chosen}",
                remedy=f"fetch the run's other files with `fab fetch --run {chosen} --from-bucket`",
            )
        return record

    def fetch(self, run_id: str, into: Path) -> Fetched:
        """Download a run's archived files to `into/RUN_ID`; "" selects the newest run.

        Other files that are already there stay. Raises DeepcdkError without such a run, for a directory that is not
        from a fetch of this run, and if a file cannot be downloaded. No file then appears there.
        """
        from boto3.exceptions import Boto3Error, RetriesExceededError
        from s3transfer.exceptions import S3DownloadFailedError

        with doing("reading the bucket"):
            bucket, chosen = self._find(run_id)
        action, prefix = f"fetching run {chosen} from {bucket}", f"{PREFIX}{chosen}/"
        with doing(action), atomic_directory(into, chosen) as intake, aws_errors(action):
            s3, places = self.aws.client("s3"), list[tuple[str, Path]]()
            for key in self._keys(bucket, prefix):
                name = key.removeprefix(prefix)
                if key.endswith("/"):
                    intake.count_entry()
                    continue
                try:
                    places.append((key, intake.create(name)))
                except EntryError:
                    raise DeepcdkError(
                        f"object {name!a} would be written outside of the run's directory; nothing was written",
                        where=f"s3://{bucket}/{prefix}",
                        remedy="inspect or delete it, then repeat `fab fetch`",
                    ) from None

            def bring(place: tuple[str, Path]) -> int:
                """Download one object; return its size in bytes. `place` is its key and the file to write. Raises
                DeepcdkError.
                """
                try:
                    s3.download_file(bucket, place[0], str(place[1]), Callback=intake.count_bytes)
                except (Boto3Error, S3DownloadFailedError) as error:
                    cause, remedy = str(error), "repeat `fab fetch`"
                    if isinstance(error, RetriesExceededError):
                        cause, remedy = f"{error.last_exception}", f"check your network, then {remedy}"  # type: ignore[attr-defined]  # the stubs lack it
                    what = f"downloading {place[0]!a} failed: {cause}"
                    raise DeepcdkError(what, where=f"s3://{bucket}/", remedy=remedy) from None
                return place[1].stat().st_size

            with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
                sizes = list(pool.map(bring, places))
        return Fetched(directory=into / chosen, files=len(sizes), size_bytes=sum(sizes))

    def _find(self, run_id: str) -> tuple[str, str]:
        """Return bucket and id of a run; "" selects the newest run. Raises DeepcdkError if there is no such run."""
        places = self._places()
        for bucket, found in reversed(places):
            if run_id in ("", found):
                return bucket, found
        listed = ", ".join(found for _, found in places[-5:])
        raise DeepcdkError(
            f"no run {run_id} in {self}" if run_id else f"no run in {self}",
            remedy=f"choose one of the last runs: {listed}" if listed else "start a run, which is copied there",
        )

    def _places(self) -> list[tuple[str, str]]:
        """Return the bucket and id of each archived run, sorted by id, oldest first. Raises AwsError."""
        found = []
        with aws_errors(f"listing {self}"):
            for bucket in self.buckets:
                paginator = self.aws.client("s3").get_paginator("list_objects_v2")
                for page in paginator.paginate(Bucket=bucket, Prefix=PREFIX, Delimiter="/"):
                    folders = [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
                    names = [folder.removeprefix(PREFIX).rstrip("/") for folder in folders]
                    found += [(name, bucket) for name in names if is_run_id(name)]
        return [(bucket, name) for name, bucket in sorted(found)]

    def _keys(self, bucket: str, prefix: str) -> Iterator[str]:
        pages = self.aws.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return (entry["Key"] for page in pages for entry in page.get("Contents", []))

    def _record(self, bucket: str, run_id: str) -> dict[str, Any] | None:
        """Read a run's record; None if it is missing, too large, invalid, or about another run. Raises AwsError."""
        from botocore.exceptions import ClientError

        with aws_errors(f"reading the record of {run_id} in {bucket}"):
            try:
                answer = self.aws.client("s3").get_object(Bucket=bucket, Key=f"{PREFIX}{run_id}/{RECORD_FILE}")
                text = answer["Body"].read(MAX_RECORD_BYTES + 1)
                if len(text) > MAX_RECORD_BYTES:
                    return None
                record: dict[str, Any] = answers.parse(text.decode("utf-8"))
            except ClientError as error:
                if error.response["Error"]["Code"] != "NoSuchKey":
                    raise
                return None
            except ValueError:
                return None
        # The master wrote this file. If it is not a valid record of this run, treat it as missing.
        return None if answers.record(record) or record["run_id"] != run_id else record


def find(aws: Aws, name: str) -> Archive | None:
    """Return the archive in the buckets of the clusters with this name, deployed or deleted; None if there are none.

    The buckets are recognized by CloudFormation's bucket name and by tag. Buckets whose tags may not be read are
    skipped. Raises AwsError.
    """
    from botocore.exceptions import ClientError

    found = []
    with aws_errors(f"looking for the buckets of {name}"):
        s3 = aws.client("s3")
        for bucket in s3.list_buckets().get("Buckets", []):
            if not bucket["Name"].startswith(f"{name}-runbucket-"):
                continue
            try:
                tags = s3.get_bucket_tagging(Bucket=bucket["Name"])["TagSet"]
            except ClientError as error:
                if error.response["Error"]["Code"] not in ("NoSuchTagSet", "NoSuchBucket", "AccessDenied"):
                    raise
                continue
            if {"Key": CLUSTER_TAG, "Value": name} in tags:
                found.append(bucket["Name"])
    return Archive(aws=aws, buckets=tuple(found)) if found else None


def archived(session: Session, *, archive_only: bool) -> Archive | None:
    """Return the archive if the cluster is gone (a note is printed) or `archive_only` is set, else None.

    Raises NoStackError if there is neither a cluster nor a bucket. With `archive_only`, raises DeepcdkError if there is
    no bucket.
    """
    if not archive_only:
        try:
            session.load_inventory()
            return None
        except NoStackError:
            if found := find(session.aws, session.config.stack_name):
                print_note(f"the cluster is not deployed; using the copy in {found}")
                return found
            raise
    if found := find(session.aws, session.config.stack_name):
        return found
    raise DeepcdkError(
        f"no run bucket of {session.config.stack_name} exists",
        where=f"region {session.aws.region}",
        remedy="check the name of the cluster, AWS_REGION and AWS_PROFILE. If the cluster was deployed with "
        "retain_data=false, `fab down` has deleted the bucket too",
    )


def fetch_run(
    session: Session, run_id: str, into: Path, *, archive_only: bool = False, checkpoints: bool = False
) -> Fetched:
    """Download a run's files to `into/RUN_ID`, from the live cluster or its archive. Raises DeepcdkError.

    An empty `run_id` selects the live run, or else the newest. Checkpoints of a live cluster's runs are included only
    on request; an archive's are always. `archived` chooses the source.
    """
    if archive := archived(session, archive_only=archive_only):
        return archive.fetch(run_id, into)
    with session.connect() as master:
        found = session.supervisor(master).status(run_id)["run_id"]
        return fetching.fetch(master, session.stack.runs_root, found, into, checkpoints=checkpoints)
