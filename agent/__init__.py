"""What runs any program on the nodes: prepares them, launches, supervises and records runs, moves data.

Standard library only: nodes have nothing else before their runtime is made.
"""
