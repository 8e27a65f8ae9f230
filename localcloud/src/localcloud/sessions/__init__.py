"""Session Manager of the embedded cloud: data channels from the laptop to the hosts, in the protocol of AWS's own."""
