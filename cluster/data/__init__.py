"""Data staged to the nodes: what is sent, by which questions to the master, and what came of it."""
