"""Files that survive crashes and are shared between processes."""
