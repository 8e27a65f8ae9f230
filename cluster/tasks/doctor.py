"""The task that looks at everything before it costs."""

from __future__ import annotations

from pathlib import Path

from invoke.exceptions import Exit

from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, task
from cluster.session import Session
from cluster.terminal.output import print_result
from cluster.terminal.status_line import doing


@task()
def doctor(set_: Set = (), json: Json = False, key: Key = "") -> None:
    """
    Check what a deployment needs of account and laptop: credentials, key, images, zones, quotas, room.

    It changes nothing and costs nothing. It ends with 1 where something would fail.

    Example: fab doctor --set worker_instance_type=p5.48xlarge --set efa=true
    """
    # Its many modules are of no use to the other tasks, nor to `fab --list`.
    from cluster.doctor import examination as examiner
    from cluster.doctor.finding import FAIL, Subject
    from cluster.terminal import tables

    session = Session(PROJECT, set_, key=key)
    subject = Subject(aws=session.aws, config=session.config, project=PROJECT, home=Path.home(), key=key)
    with doing("asking AWS"):
        findings = examiner.examine(subject)
    if json:
        print_result(examiner.document(findings), json=True)
    else:
        tables.print_table(examiner.findings_table(session.config.stack_name, findings))
    if any(each.state == FAIL for each in findings):
        raise Exit(code=1)
