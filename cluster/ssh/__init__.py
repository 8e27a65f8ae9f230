"""The SSH connection to the master, and everything that uses it: code, files, commands, web pages."""
