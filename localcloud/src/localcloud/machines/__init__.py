"""Hosts that are machines of QEMU, with a kernel and a systemd of their own."""
