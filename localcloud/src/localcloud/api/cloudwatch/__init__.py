"""CloudWatch: metrics, and alarms that act on them."""
