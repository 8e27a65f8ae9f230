"""Start the ranks of a run from its spec: hosts, launchers, and the program of each rank."""
