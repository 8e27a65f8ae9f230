"""Data sets that are held in memory."""
