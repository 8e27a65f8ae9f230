"""The supervisor on the master: takes runs, queues them, carries them out, and says why one failed."""
