"""Benchmarks: of a cluster (`ranks`, for `fab bench`), and of networks on one machine (`python -m payload.bench`)."""
