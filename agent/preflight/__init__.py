"""The checks before a run: facts about each node, an allreduce over all nodes, and the verdict."""
