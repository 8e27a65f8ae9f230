"""The task that copies data to the nodes."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time
from typing import Annotated

from agent.spec.nodes import RANK_HOME, workers
from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, Yes, task
from cluster.errors import DeepcdkError, UsageError
from cluster.session import Session
from cluster.staging.files_to_stage import BackgroundManifest, is_bucket, parse_name, survey
from cluster.staging.node_reports import StagingResult
from cluster.staging.stager import Stager
from cluster.terminal import progress
from cluster.terminal.output import print_line, print_note, print_result
from cluster.terminal.status_line import doing


@task(word="--source", short_flags=False)
def stage_data(
    set_: Set = (),
    source: Annotated[str, "directory or file on this machine, or s3://BUCKET/PREFIX"] = "",
    to: Annotated[str, "shared: the file system that all nodes see; local: each worker's own disk"] = "shared",
    name: Annotated[str, "name of the data set; default: the last part of the source"] = "",
    sharded: Annotated[bool, "with --to local: distribute whole files, each to one worker only"] = False,
    follow_links: Annotated[bool, "stage the targets of symbolic links; default: reject links"] = False,
    json: Json = False,
    yes: Yes = False,
    key: Key = "",
) -> None:
    """
    Copy data to the nodes, and verify every file by its checksum. The laptop uploads each file once.

    After an interruption, repeat the command. Files with the right checksum are not sent again.

    Example: fab stage-data ~/imagenet --to local --sharded
    """
    if not source:
        raise UsageError("SOURCE", None, "is missing; give a directory, a file, or s3://BUCKET/PREFIX")
    if to not in ("shared", "local"):
        raise UsageError("--to", to, "must be shared or local")
    if sharded and to == "shared":
        rule = "needs --to local, because every node sees the whole shared file system; add it, or leave out --sharded"
        raise UsageError("--sharded", None, rule)
    in_bucket = is_bucket(source)
    chosen = parse_name(name, source)
    with doing("listing the files to stage"):
        found = None if in_bucket else survey(source, follow_links=follow_links)
    session = Session(PROJECT, set_, key=key)
    terminal = sys.stdout.isatty() and not json
    reports, sent = None, 0
    write = print_note if json else print_line
    with progress.make(terminal=terminal, write=write) as shown, contextlib.ExitStack() as opened:
        if found:
            shown.begin("reading", len(found.files), found.size)
            reading = opened.enter_context(BackgroundManifest(found, shown.at))  # while AWS and the master are asked
        stack = session.stack
        shared = f"{stack.efs_mount}/data"
        local = f"{stack.scratch_mount}/data" if stack.scratch_mount else f"{RANK_HOME}/data"
        master = opened.enter_context(session.connect())
        began = time.monotonic()
        there = workers(session.nodes(master))
        if to == "local" and not there:
            raise DeepcdkError("no worker is ready", remedy="start some with `fab scale --nodes N`")
        stager = Stager(master, session.push_agent(master), session.agent_directory, shared, chosen, there, shown)
        try:
            if found:
                manifest = reading.result()
                if to == "local":
                    sent, reports = stager.upload_and_copy(found.root, manifest, local, sharded=sharded)
                else:
                    sent = stager.upload(found.root, manifest)
            elif to == "shared":
                manifest = stager.fetch_shared(source, session.aws.region)
            else:
                manifest = stager.listing(source, session.aws.region)
                reports = stager.fetch(source, session.aws.region, local, sharded=sharded)
        except KeyboardInterrupt:
            shown.note("\ncomplete files are kept; to continue, repeat the command")
            raise
    staged = StagingResult(
        name=chosen,
        source=source,
        to=to,
        directory=f"{local if to == 'local' else shared}/{chosen}",
        files=len(manifest.entries),
        bytes=manifest.size,
        sha256=manifest.digest if found or to == "shared" else "",
        uploaded_bytes=sent,
        sharded=sharded,
        seconds=round(time.monotonic() - began, 3),
        nodes={
            host: {kind: done[kind] for kind in ("files", "bytes", "came_bytes")}
            for host, done in sorted((reports.done if reports else {}).items())
        },
    )
    print_result(dataclasses.asdict(staged), str(staged), json=json)
