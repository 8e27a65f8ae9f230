"""The one change to Horovod's source: after a lost connection over Gloo, no further collective. Standard library only.

Horovod's background thread tells a tensor's failed sum to the framework, and goes on to agree with the other ranks on
what to sum next: by a sum of 8 bytes, over the same context, and with the same tag. A rank that was about to send to
the one that is gone has failed so, while the rank before it, which has not noticed yet, still sends it a share of the
tensor. That arrives where 8 bytes are awaited, and Gloo ends the process from its own thread: `enforce fail at
gloo/transport/tcp/pair.cc:510, op.preamble.length <= op.nbytes` (Horovod 0.28.1, seen with 8 ranks of which one was
killed). A context that has lost a connection sums nothing any more, so the thread ends at once, as it does where
agreeing fails, and what waits in its queue fails with it. A program with process sets of its own ends there all the
same: to remove them, Horovod has all ranks agree once more.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Final

from agent.environment.toolchain import HorovodError

FILE: Final = "horovod/common/operations.cc"


@dataclasses.dataclass(frozen=True)
class Edit:
    """A passage of FILE, and what takes its place."""

    old: str
    new: str


EDITS: Final = (
    Edit(
        '#include "gloo/gloo_controller.h"\n',
        '#include "gloo/common/error.h"\n#include "gloo/gloo_controller.h"\n',
    ),
    Edit(
        """\
  Status status;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
        """\
  Status status;
  std::exception_ptr lost_connection;
  try {
    // process_set is passed here only for the case of Response::JOIN where
""",
    ),
    Edit(
        """\
  } catch (const std::exception& ex) {
    LOG(DEBUG, horovod_global.global_controller->GetRank())
        << "ExecuteOperation Failed";
""",
        """\
#if HAVE_GLOO
  } catch (const ::gloo::IoException& ex) {
    status = Status::UnknownError(ex.what());
    lost_connection = std::current_exception();
#endif
  } catch (const std::exception& ex) {
    LOG(DEBUG, horovod_global.global_controller->GetRank())
        << "ExecuteOperation Failed";
""",
    ),
    Edit(
        """\
      e.FinishWithCallback(status);
    }
  }
}

#if HAVE_MPI
""",
        """\
      e.FinishWithCallback(status);
    }
  }
  if (lost_connection) {
    std::rethrow_exception(lost_connection);
  }
}

#if HAVE_MPI
""",
    ),
)
DIGEST: Final = hashlib.sha256("\0".join(text for edit in EDITS for text in (edit.old, edit.new)).encode()).hexdigest()
"""Of the change: another one makes another wheel."""


def patch(source: Path) -> None:
    """Make the change to the release that is unpacked in the folder `source`. Raises HorovodError where it differs."""
    path = source / FILE
    text = path.read_text()
    for edit in EDITS:
        if text.count(edit.old) != 1:
            raise HorovodError(f"{path} has {text.count(edit.old)} times what is changed in it once:\n{edit.old}")
        text = text.replace(edit.old, edit.new)
    path.write_text(text)
