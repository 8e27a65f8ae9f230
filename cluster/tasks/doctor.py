"""The task that checks laptop, configuration and account before a deployment."""

from __future__ import annotations

from pathlib import Path

from invoke.exceptions import Exit

from cluster.cli import PROJECT
from cluster.cli.task import Json, Key, Set, task
from cluster.session import Session
from cluster.terminal import status_line
from cluster.terminal.output import print_result
from cluster.terminal.tables import print_table
from stacks.config import ConfigError


@task()
def doctor(set_: Set = (), json: Json = False, key: Key = "") -> None:
    """
    Check laptop, configuration and account for a deployment: keys, images, zones, quotas and more.

    Without a project or credentials it checks only the laptop. It changes nothing and costs nothing. It exits with
    status 1 if something would fail.

    Example: fab doctor --set worker_instance_type=p5.48xlarge --set efa=true
    """
    # Import these modules here: there are many, and other tasks and `fab --list` do not need them.
    from cluster.doctor import checks as examiner
    from cluster.doctor.finding import FAIL, Subject

    findings, title = examiner.examine_laptop(), "this laptop"
    try:
        session = Session(PROJECT, set_, key=key)
    except ConfigError as error:
        findings += examiner.without_configuration(error)
    else:
        title = f"before stack {session.config.stack_name} is deployed"
        subject = Subject(aws=session.aws, config=session.config, project=PROJECT, home=Path.home(), key=key)
        with status_line.doing("asking AWS"):
            findings += examiner.examine(subject)
    if json:
        print_result(examiner.document(findings), json=True)
    else:
        print_table(examiner.findings_table(title, findings))
    if any(each.state == FAIL for each in findings):
        raise Exit(code=1)
