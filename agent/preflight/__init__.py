"""The checks before a run: facts of each node, an allreduce over all, and their judgement."""
