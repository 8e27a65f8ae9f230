"""The bodies of the `fab` tasks, one module per subject. `fabfile.py` collects them."""
