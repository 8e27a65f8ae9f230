"""A model of a training run: its time, cost and bottleneck, by instance type and number of nodes. Pure functions.

Each figure of the model has a source and a range (`evidence`). docs/plan.md describes the method.
"""
