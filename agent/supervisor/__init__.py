"""The supervisor on the master: it queues, starts, watches and restarts runs, and finds out why a run failed."""
