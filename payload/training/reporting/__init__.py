"""Report the progress and results of a run."""
