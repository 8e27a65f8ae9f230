"""Reports of runs: the contents of a run's record as one HTML file, as Markdown, and as JSON."""
