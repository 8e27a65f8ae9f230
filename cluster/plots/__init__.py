"""Plots: curves, timeline and confusion matrix of a report; pictures of benchmarks and plans."""
