"""Who calls the API, what the call needs, and whether the policies allow it."""
