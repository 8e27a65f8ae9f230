"""Programs that run inside the hosts, with the standard library alone."""
