"""Output on the terminal: status line, progress, tables, folded text."""
