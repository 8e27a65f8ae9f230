"""Checkpoints: written beside the training, kept, found again."""
