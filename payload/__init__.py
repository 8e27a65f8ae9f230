"""What runs on the nodes: models, data, training, and the supervisor of a run. Shipped whole."""
