"""The trained network as files, and what it takes to build it again."""
