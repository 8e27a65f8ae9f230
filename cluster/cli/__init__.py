"""The command line of the tasks: which task a word names, its flags, its errors, Ctrl-C."""
