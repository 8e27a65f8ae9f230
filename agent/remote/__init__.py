"""Commands, signals and secrets: what the master runs and stores on nodes besides the launch of ranks."""
