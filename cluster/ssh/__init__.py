"""The one SSH connection to the master, and what goes over it: code, files, commands, web pages."""
