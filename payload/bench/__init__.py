"""What ranks measure for `fab bench` (`ranks`), and a table of networks on one machine: `python -m payload.bench`."""
