"""Launch, follow and show training runs: from `fab train` options to the supervisor's commands and the run's record."""
