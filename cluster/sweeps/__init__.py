"""Sweeps: runs of one program over values of its parameters."""
