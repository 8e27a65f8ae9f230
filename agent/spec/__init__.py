"""Plain values that laptop, master and ranks exchange."""
