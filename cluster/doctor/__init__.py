"""Checks of `fab doctor`, by topic. Each check asks AWS or the laptop and judges the answer."""
