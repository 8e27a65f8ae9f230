"""Checkpoints: written during the training, retained, and restored."""
