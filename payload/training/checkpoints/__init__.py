"""Write, retain and restore checkpoints."""
