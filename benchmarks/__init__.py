"""Measure how long operations take on this machine. These are not tests."""
