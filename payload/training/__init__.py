"""The parts of a training run, and the loop that runs them."""
