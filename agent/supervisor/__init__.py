"""The supervisor on the master: starts, queues and supervises runs, and finds why one failed."""
