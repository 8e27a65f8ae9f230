"""Figures, not tests: how long things take, measured on the machine at hand."""
