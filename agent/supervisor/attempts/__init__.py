"""One attempt of a run: prepare and check its hosts, launch its ranks, and watch them until they exit."""
