"""Session Manager of the embedded cloud: streams from the laptop to the hosts, authorized as on AWS."""
