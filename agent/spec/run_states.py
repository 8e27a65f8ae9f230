"""The states of a run, two of its files, and the grace period when it is stopped."""

from __future__ import annotations

from typing import Final

QUEUED: Final = "queued"
LIVE_STATES: Final = ("starting", "running")
FINAL_STATES: Final = ("succeeded", "failed", "stopped")
STATES: Final = (QUEUED, *LIVE_STATES, *FINAL_STATES)
LAST_TIME: Final = 253_402_300_799
"""The end of the year 9999, in seconds since 1970: the last date of Python's datetime."""
RECORD_FILE: Final = "record.json"
STOP_FILE: Final = "stop.json"
"""A user's request to stop the run."""
MAX_STOP_GRACE_S: Final = 86400.0
STOP_GRACE_S: Final = 30.0
"""Default seconds from SIGTERM to SIGKILL when a run is stopped, for a checkpoint."""
