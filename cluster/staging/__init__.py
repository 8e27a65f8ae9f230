"""Stage data to the nodes: read the source, send it through the master, and report the result."""
