"""The task that writes a new project: the files that `deepcdk` and `cdk` need in a user's directory."""

from __future__ import annotations

import difflib
import errno
import json
import re
from pathlib import Path
from typing import Annotated, Final

from cluster.cli.task import task
from cluster.errors import DeepcdkError, UsageError
from cluster.terminal.output import print_line, print_sentence
from cluster.terminal.paths import is_file, resolved
from stacks.config import ClusterConfig, ConfigError

EDITED: Final = ("name", "key_name", "ssh_cidr", "workers", "max_workers", "worker_instance_type", "retain_data")
"""Keys of context.cluster in a new cdk.json, with their defaults. Few projects change the other keys."""
FILES: Final = {
    "app.py": "import deepcdk\n\napp = deepcdk.app()\napp.synth()\n",
    "fabfile.py": "import deepcdk\n\nns = deepcdk.tasks()\n",
    "fabric.yaml": "# For Fabric's own fab. deepcdk needs neither this file nor fabfile.py.\n"
    "tasks:\n  executor_class: deepcdk.WordsExecutor\nload_ssh_configs: false\n",
    ".gitignore": "/.venv/\n/cdk.out*/\n/cdk.context.json\n/runs/\n__pycache__/\n",
    ".deepcdkignore": "# Files that --payload does not upload, also outside of a git repository.\n/cdk.out*/\n"
    "/cdk.context.json\n/runs/\n",
}
"""Files of a new project, in addition to cdk.json."""
NEXT: Final = "next: in cdk.json set ssh_cidr to your address/32; then run `cdk synth` or `deepcdk up` in the project"


@task(word="--directory")
def init(directory: Annotated[str, "directory of the project; default: the current one"] = "") -> None:
    """
    Write the files of a new project. Existing files are kept, and a diff shows the differences.

    Example: fab init my-cluster
    """
    try:
        project = resolved(directory or ".")
        project.mkdir(parents=True, exist_ok=True)
        written, kept = [], []
        for name, text in {"cdk.json": cdk_json(project.name), **FILES}.items():
            if write_new(project / name, text):
                written.append(name)
            elif difference := diff_of(project / name, text):
                kept.append(name)
                print_line(difference)
    except FileExistsError:
        raise UsageError("DIR", directory, "is a file; give a directory, or a name that does not exist") from None
    except OSError as error:
        remedy = (
            "free some space there, then repeat the command"
            if error.errno in (errno.ENOSPC, errno.EDQUOT)
            else "give a directory in which you may write: `deepcdk init DIR`"
        )
        what, where = f"cannot write the project: {error.strerror}", str(error.filename or directory)
        raise DeepcdkError(what, where=where, remedy=remedy) from None
    print_sentence(f"{project}: " + (f"wrote {', '.join(written)}" if written else "nothing to write"))
    if kept:
        remedy = "copy the lines with + that you want, or give another directory"
        raise DeepcdkError(f"not written, because they exist: {', '.join(kept)}", where=str(project), remedy=remedy)
    print_sentence(NEXT)


def cdk_json(directory_name: str) -> str:
    """Return the text of a cdk.json with the keys in EDITED. `ssh_cidr` is empty.

    The cluster is named after the directory, or has the default name if AWS does not allow this name.
    """
    try:
        config = ClusterConfig(name=re.sub(r"[^a-z0-9]+", "-", directory_name.lower()).strip("-")[:32].strip("-"))
    except ConfigError:
        config = ClusterConfig()
    cluster = {key: getattr(config, key) for key in EDITED} | {"key_name": config.name, "ssh_cidr": ""}
    return json.dumps({"app": "python3 app.py", "context": {"cluster": cluster}}, indent=2) + "\n"


def write_new(path: Path, text: str) -> bool:
    """Write a new file. Return False if the path exists, even as a broken link. Raises OSError. No incomplete file is
    left.
    """
    try:
        file = path.open("x", encoding="utf-8")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(text)
    except BaseException:  # the next call would keep an incomplete file
        path.unlink()
        raise
    return True


def diff_of(path: Path, text: str) -> str:
    """Return a unified diff from the existing file to the text, or "" if there is nothing to change. Raises OSError.

    If the path is not a file, a sentence about that is returned. Lines that the user has added to an ignore file do not
    count as differences.
    """
    if not is_file(path):
        return f"{path} is not a file"
    present = path.read_text(encoding="utf-8", errors="backslashreplace").splitlines()
    lines = text.splitlines()
    if path.suffix == "" and path.name.endswith("ignore"):  # the user's own lines stay
        lines = [*present, *(line for line in lines if line not in present)]
    return "\n".join(difflib.unified_diff(present, lines, str(path), f"{path} (new)", lineterm="", n=1))
