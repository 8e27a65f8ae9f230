"""Data sets as arrays in memory."""
