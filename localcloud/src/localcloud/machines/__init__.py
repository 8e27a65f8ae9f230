"""Hosts that are QEMU machines, with their own kernel and systemd."""
