"""Stand-in for the CloudWatch agent. It runs in the hosts and only uses the standard library."""
