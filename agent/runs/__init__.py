"""Runs on the shared file system: their state, records and message streams; the queue, and the claims on nodes."""
