"""A run on the shared file system: its state, its record, the queue, and its stream of messages."""
