"""Build the networks. Each module contains one family."""
