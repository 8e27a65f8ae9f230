"""The workers: grow, shrink and replace them, and what they are doing."""
