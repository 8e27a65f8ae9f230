"""The embedded cloud: an AWS API, real hosts and real networks on one Linux machine."""
