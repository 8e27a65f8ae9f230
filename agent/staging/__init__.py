"""Stage data sets on the nodes: receive, verify, copy to local disks, fetch from S3."""
