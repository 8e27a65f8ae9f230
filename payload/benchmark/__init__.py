"""Images a second of the networks: `python -m payload.benchmark`."""
