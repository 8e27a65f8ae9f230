"""Fault injection into the hosts and networks of a running cloud: faults are drawn from a seed and repaired."""
