"""Hardware of a machine: topology, limits, GPUs, load, and the placement of its ranks."""
