"""The code that runs on the nodes: it prepares them, launches, supervises and records runs, and moves data.

It uses only the standard library: a node has no other packages until its runtime is installed.
"""
