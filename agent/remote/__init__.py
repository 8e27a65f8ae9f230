"""Commands and signals on nodes, from the master, and the secrets that a run leaves there for a while."""
