"""Stand-in for the CloudWatch agent, of the standard library alone: it runs in the hosts."""
