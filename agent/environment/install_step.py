"""Run a step of an installation, such as pip or uv. The error of a failed step has the lines with the reason."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.files.atomic_write import describe_full_disk
from agent.files.build_once import temporary_directory_of, with_temporary_files

ERROR_LINES: Final = 8
FRAMED_LINES: Final = 15
_FRAME: Final = "╰─>"


class RuntimeSetupError(RuntimeError):
    """Report why an environment on a node could not be made, and how to fix it."""


def run_step(
    step: str,
    command: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    directory: Path,
    log: Path | None,
    shows_progress: bool = False,
) -> str:
    """Run a step's command and return its stdout and stderr.

    With `shows_progress`, return only stdout; stderr is not captured, so it is shown. `step` names the step in errors,
    and `directory` is the environment that it makes. Raises RuntimeSetupError with the last lines of the output if the
    command fails; the whole output is then written to `log`, unless that is None.
    """
    finished = subprocess.run(
        command,
        cwd=cwd,
        env=with_temporary_files(environ, temporary_directory_of(directory)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if shows_progress else subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if finished.returncode != 0:
        output = finished.stdout
        lines = [f"{step} failed with exit status {finished.returncode}", *reason_lines(output)]
        lines += [full] if (full := describe_full_disk(directory, output)) else []
        if log and output:
            try:
                log.write_text(output, encoding="utf-8")
                lines += ["the full log is install-NODE.log in the run's directory; `fab fetch` downloads it"]
            except OSError as error:
                lines += [f"(the full log could not be written: {error.strerror})"]
        raise RuntimeSetupError("\n".join(lines))
    return finished.stdout


def reason_lines(output: str) -> list[str]:
    """Return the lines of a failed step's output with the reason: the failed package build's lines, or the last lines.

    pip frames the output of a build, and adds ten lines that do not contain the reason.
    """
    # Warnings of retries differ between nodes. Without them, equal messages of all nodes are reported once.
    lines = [line for line in output.splitlines() if not line.startswith(("WARNING:", "[notice]"))]
    end = next((at for at, line in enumerate(lines) if line.strip(" │╰─>") == "[end of output]"), None)
    begins = [at for at, line in enumerate(lines[:end]) if _FRAME in line] if end is not None else []
    if not begins:
        return lines[-ERROR_LINES:]
    title = next((line for line in reversed(lines[: begins[-1]]) if line.lstrip(" │").startswith("×")), "")
    framed = textwrap.dedent("\n".join(line.replace("│", " ") for line in lines[begins[-1] + 1 : end])).splitlines()
    return [title.strip(" │×"), *framed[-FRAMED_LINES:]]
