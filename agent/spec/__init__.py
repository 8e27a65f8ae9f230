"""What crosses the wire between laptop, master and ranks, as plain values."""
