"""The workers: grow, shrink and replace them, and show their state and load."""
