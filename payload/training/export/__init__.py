"""The trained network as files, and what rebuilds it."""
