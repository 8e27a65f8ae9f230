"""A model of a training run: its time, its cost and what bounds it, by nodes and instance type. Pure functions.

Each figure of the model stands beside its source and its range (`evidence`); docs/plan.md has the method.
"""
