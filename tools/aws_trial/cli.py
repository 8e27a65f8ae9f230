"""Try the project on a real AWS account, and compare each answer with what the embedded cloud gives.

    make test-aws SSH_CIDR=198.51.100.7/32        (198.51.100.7: your own public address)
    .venv/bin/python -m tools.aws_trial --ssh-cidr 198.51.100.7/32 [--region eu-west-1] [--yes]

It shows the account and the price, asks, deploys a cluster of its own (a new name, a tag of its own) with two small
workers, runs what `make demo` and `fab doctor` run, makes calls that AWS must refuse, destroys all of it, lists what is
left, and writes a report without the account's ids to send back. It has not been tried on AWS yet; what it does is
rehearsed on the embedded cloud: `make test-aws EMBEDDED=1`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cluster.aws.client import aws_errors
from cluster.deploy.estimate import describe_deployment
from cluster.errors import DeepcdkError
from cluster.session import Session
from stacks.config import ConfigError
from tools import demo
from tools.aws_trial import plan, report
from tools.aws_trial.observation import Observation, ObservationError, read
from tools.aws_trial.trial import Trial, run

EXPECTED: Final = Path(__file__).resolve().parent / "embedded_cloud.json"
"""What the embedded cloud gave, committed; `--record` writes it anew."""
CLOUD: Final = "aws-trial"


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m tools.aws_trial",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # --embedded is taken out of the words that the rehearsal passes on
    )
    made.add_argument("--ssh-cidr", default="", help="your own address as a network, as 198.51.100.7/32")
    made.add_argument(
        "--session-manager", action="store_true", help="reach the master by Session Manager, without an open port"
    )
    made.add_argument("--region", default="", help="default: AWS_REGION, or your profile's")
    made.add_argument("--name", default="", help=f"name of the cluster; default: {plan.PREFIX} and four random digits")
    made.add_argument("--worker-type", default=plan.WORKER_TYPE, help=f"default: {plan.WORKER_TYPE}")
    made.add_argument("--into", default="aws-trial", help="directory of the report; default: aws-trial")
    made.add_argument("--keep", action="store_true", help="do not destroy the cluster")
    made.add_argument("--yes", action="store_true", help="do not ask")
    made.add_argument(
        "--embedded", action="store_true", help="rehearse on an embedded cloud, which is started and stopped"
    )
    made.add_argument("--record", action="store_true", help="write what the embedded cloud gives as what is expected")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trial. Return 0 if all commands ended well and nothing is left, else 1; 2 for wrong arguments."""
    words = list(sys.argv[1:] if argv is None else argv)
    options = parser().parse_args(words)
    if options.embedded:
        return _rehearse([word for word in words if word != "--embedded"])
    if bool(options.ssh_cidr) == options.session_manager:
        parser().error("give --ssh-cidr ADDRESS/32 (your own public address), or --session-manager")
    name = options.name or plan.new_name()
    if not plan.is_trial_name(name):
        parser().error(
            f"--name must be {plan.PREFIX} and 4 to 12 of 0-9a-f: the trial destroys the cluster of this name"
        )
    if options.region:
        os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = options.region
    try:
        return _try(options, plan.settings(name, options.ssh_cidr, options.worker_type))
    except (DeepcdkError, ConfigError, ObservationError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nInterrupted. If it was deployed, the cluster is left: fab down --set name={name}", file=sys.stderr)
        return 130


def _try(options: argparse.Namespace, settings: dict[str, str]) -> int:
    session = Session(demo.ROOT, [f"{key}={value}" for key, value in settings.items()], deploying=True)
    expected = None if options.record else read(EXPECTED)
    if options.record and not session.aws.endpoint:
        raise DeepcdkError("--record writes what the embedded cloud gives", remedy="give --embedded too")
    _confirm(session, yes=options.yes)
    directory = Path(options.into).resolve() / settings["name"]
    directory.mkdir(parents=True, exist_ok=True)
    trial = Trial(aws=session.aws, settings=settings, directory=directory, commit=_commit(), keep=options.keep)
    observed = run(trial)
    if options.record:
        EXPECTED.write_text(observed.to_json(), encoding="utf-8")
        print(f"\nwritten: {EXPECTED}")
    else:
        _write(directory, observed, expected or observed)
    good = all(not each.exit_code for each in observed.commands) and not observed.left and not _cut_short(observed)
    return 0 if good else 1


def _cut_short(observed: Observation) -> bool:
    return "interrupted" in observed.facts or "error" in observed.facts


def _write(directory: Path, observed: Observation, expected: Observation) -> None:
    text = report.render(observed, expected)
    (directory / "report.md").write_text(text, encoding="utf-8")
    (directory / "observation.json").write_text(observed.to_json(), encoding="utf-8")
    print(f"\nreport: {directory / 'report.md'}\n  and what it is made of: {directory / 'observation.json'}")
    print("  Read them before you send them: ids and addresses are replaced, your own words in tags are not.")


def _confirm(session: Session, *, yes: bool) -> None:
    """Show the account and the price, and ask for the cluster's name. Raises DeepcdkError for another answer."""
    with aws_errors("asking who you are"):
        caller = session.aws.client("sts").get_caller_identity()
    name = session.config.stack_name
    print(f"account {caller['Account']}, region {session.aws.region}, as {caller['Arn']}")
    print(describe_deployment(session))
    print(
        "A file system, a bucket and their traffic come to it. It takes about 40 minutes on AWS (estimated, not yet "
        f"measured there), and all workers are stopped after {plan.MAX_HOURS} hours at the latest."
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise DeepcdkError("there is no terminal to ask on", remedy="give --yes")
    try:
        answer = input(f"Type {name} to go on: ")
    except EOFError:  # Ctrl-D
        answer = ""
    if answer.strip() != name:
        raise DeepcdkError(f"not done: the answer was not {name}")


def _commit() -> str:
    """Return the checkout's commit, with + where files were changed; "unknown" outside a repository."""
    ask = ["git", "-C", str(demo.ROOT), "describe", "--always", "--dirty=+"]
    found = subprocess.run(ask, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _rehearse(words: Sequence[str]) -> int:
    """Run the trial on an embedded cloud of its own. Return the trial's exit code."""
    start = demo.localcloud("start", "--name", CLOUD, *demo.runtime_mount())
    given = [] if {"--session-manager", "--ssh-cidr"} & set(words) else ["--ssh-cidr", demo.LAPTOP_CIDR]
    trial = ["python", "-m", "tools.aws_trial", *given, *words]
    if status := _run(start):
        return status  # Another rehearsal may have a cloud of this name up.
    try:
        key = ("sh", "-c", demo.shell(demo.SSH_KEYGEN))
        return _run(_laptop(*key)) or _run(_laptop(*trial))
    except KeyboardInterrupt:
        return 130
    finally:
        _run(demo.localcloud("stop", "--name", CLOUD))


def _laptop(*command: str) -> list[str]:
    return demo.localcloud("run", "--name", CLOUD, "--", *command)


def _run(command: Sequence[str]) -> int:
    print(f"$ {shlex.join(command)}", flush=True)
    return subprocess.run(command, cwd=demo.ROOT, env=demo.environment(), check=False).returncode
