"""One host for each EC2 instance: its root, its processes, its console, its measurements."""
