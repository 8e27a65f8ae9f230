"""The training program: models, data, recipes, and the loop over them."""
