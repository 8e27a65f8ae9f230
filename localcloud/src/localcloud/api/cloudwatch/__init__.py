"""CloudWatch: what is measured here, and alarms that act on it."""
