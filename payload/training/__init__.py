"""Training: what a run is made of, and the loop over it."""
