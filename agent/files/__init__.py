"""Files that survive crashes and are shared between processes: locks, atomic writes, builds."""
