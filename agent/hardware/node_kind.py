"""The kind of this node, as its boot has registered it, or else as the machine shows it.

Standard library only, since the node's own Python runs it.
"""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path

from agent.hardware import gpus
from agent.hardware.node_conf import NODE_CONF, read_node_conf
from agent.spec.kinds import NodeKind


def this_node_kind(conf: Path = NODE_CONF) -> NodeKind:
    """Return this node's kind. Raises SpecError for a processor that nothing here is built for."""
    if registered := read_node_conf(conf).get("kind"):
        return NodeKind.parse(registered)
    python = ".".join(platform.python_version_tuple()[:2])
    return NodeKind.parse(f"{platform.machine()}{_gpus_as_shown()}-py{python}")


def _gpus_as_shown() -> str:
    """Return the end of the kind's word for the GPUs whose device files are there."""
    if not gpus.count_gpu_devices():
        return ""
    shown: set[str] = set()
    with contextlib.suppress(gpus.NvidiaSmiError):
        shown = {line.strip().replace(".", "") for line in (gpus.query(("compute_cap",)) or "").splitlines()}
    capability = shown.pop() if len(shown) == 1 else ""
    return f"-sm{capability}" if re.fullmatch("[1-9][0-9]{1,2}", capability) else "-gpu"
