"""Faults of an AWS account that a seed draws: throttling, delays, eventual consistency and missing capacity."""
