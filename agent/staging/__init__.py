"""Data sets on the nodes: received, checked, copied to local disks, fetched from S3."""
