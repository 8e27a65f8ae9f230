"""Reports of runs: what a run's record holds, as one HTML file, as Markdown, and as JSON."""
