"""What a user sees: status line, progress, tables, folded text."""
