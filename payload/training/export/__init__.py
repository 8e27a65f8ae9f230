"""Export the trained network to files, and rebuild it from them."""
