"""A benchmark of a cluster on the laptop: its figures as a table, a picture and JSON, and beside those of another."""
