"""Runs: from the words of `fab train` to the supervisor's command, followed to their end, and their record."""
