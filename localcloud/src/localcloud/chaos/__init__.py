"""Faults on purpose, on the hosts and networks of a cloud that runs: drawn from a seed, carried out, and undone."""
