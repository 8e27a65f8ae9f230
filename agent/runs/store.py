"""All runs on the shared file system, and the lock that keeps runs one at a time."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from agent.files.atomic_write import write_atomically
from agent.runs.directory import RunDirectory
from agent.runs.process_identity import ProcessIdentity
from agent.spec import json_text
from agent.spec.states import FINAL_STATES, is_run_id


class LiveRunError(RuntimeError):
    """Report that another run is live or queued; `run_id` names it, `state` says which."""

    def __init__(self, run_id: str, state: str) -> None:
        self.run_id, self.state = run_id, state
        super().__init__(f"run {run_id} is {state}; one run at a time: wait for it, or stop it")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs:
    """All runs under one directory of the shared file system, of which one may be live."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / ".live"

    def __getitem__(self, run_id: str) -> RunDirectory:
        return RunDirectory(path=self.root / run_id)

    def ids(self) -> list[str]:
        """Return the ids of all runs, oldest first."""
        if not self.root.is_dir():
            return []
        found = (entry.parent.name for entry in self.root.glob("[!.]*/state.json"))
        return sorted(name for name in found if is_run_id(name))  # a rank may leave directories of any name

    def live(self) -> str | None:
        """Return the id of the live run, if there is one whose supervisor is alive."""
        holder = self._holder()
        return holder[0] if holder and holder[1].is_alive() else None

    def claim(self, run_id: str, owner: ProcessIdentity) -> str | None:
        """Take the lock for `run_id`. Return the id of another run that held it and has lost its supervisor.

        Raises LiveRunError while another run is live.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        with self.guard():
            holder = self._holder()
            if holder and holder[1].is_alive():
                raise LiveRunError(holder[0], "live")
            self.lock.unlink(missing_ok=True)
            content = json.dumps({"run_id": run_id, "owner": dataclasses.asdict(owner)})
            handle = os.open(self.lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(content)
        return holder[0] or None if holder and holder[0] != run_id else None

    def is_over(self, run_id: str) -> bool:
        """Return whether a run has ended for certain; one without a state may not have begun."""
        try:
            return self[run_id].effective_state().state in FINAL_STATES
        except (OSError, ValueError):
            return False

    def hand_over(self, run_id: str, owner: ProcessIdentity) -> None:
        """Make another process the holder of this run's lock."""
        write_atomically(self.lock, json.dumps({"run_id": run_id, "owner": dataclasses.asdict(owner)}))

    def release(self, run_id: str) -> None:
        """Release the lock if it is this run's."""
        with self.guard():
            holder = self._holder()
            if holder and holder[0] == run_id:
                self.lock.unlink(missing_ok=True)

    def lost(self) -> str | None:
        """Return the id of the run that holds the lock although its supervisor is gone."""
        holder = self._holder()
        return holder[0] if holder and holder[0] and not holder[1].is_alive() else None

    def _holder(self) -> tuple[str, ProcessIdentity] | None:
        try:
            document = json_text.parse(self.lock.read_bytes())
            run_id, owner = str(document["run_id"]), ProcessIdentity.from_document(document["owner"])
            if not is_run_id(run_id):
                raise ValueError("not a run's id")
            return run_id, owner
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError):
            # Cut short by a crash, or spoilt: as good as stale.
            return "", ProcessIdentity(pid=0, start_ticks=0, boot_id="", host="")

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Lock the guard, so that no other process changes the lock or the queue between a check and a change."""
        with (self.root / ".guard").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
