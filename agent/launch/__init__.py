"""From a run's spec to its ranks: hosts, launcher, and what each rank becomes."""
