"""Programs that run inside the hosts, with only the standard library."""
