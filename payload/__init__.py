"""The training program: networks, data, recipes, and the training loop."""
