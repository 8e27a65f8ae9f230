"""The hosts of EC2 instances: root, processes, console, measurements."""
