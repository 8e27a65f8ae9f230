"""Programs of the user's own: what they are, what they need, and whether they would train."""
