"""Faults of an AWS account, drawn from a seed: throttling, delays, eventual consistency and missing capacity."""
