"""What this node's boot has found out about it, and what it was told: NAME=VALUE, written by root.

Standard library only, since the node's own Python runs it.
"""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Final

NODE_CONF: Final = Path("/opt/deepcdk/node.conf")
"""`stacks/scripts/node.sh` writes it, with values quoted as for a shell."""


def read_node_conf(conf: Path = NODE_CONF) -> dict[str, str]:
    """Return the facts by their names; {} on a machine that is no node. A line that is none is left out."""
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in conf.read_text(encoding="utf-8", errors="replace").splitlines():
            name, equals, quoted = line.partition("=")
            with contextlib.suppress(ValueError):
                words = shlex.split(quoted)
                if equals and len(words) < 2:
                    found[name] = "".join(words)
    return found
