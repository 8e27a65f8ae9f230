"""What a machine is made of and what it is doing, and where its ranks run."""
