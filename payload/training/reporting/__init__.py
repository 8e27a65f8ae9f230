"""What a run reports while it runs and at its end."""
