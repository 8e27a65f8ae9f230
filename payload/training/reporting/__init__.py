"""What a run tells while it goes and at its end."""
