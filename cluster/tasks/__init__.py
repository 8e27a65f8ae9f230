"""The tasks' bodies, a noun each; `fabfile.py` collects them."""
