"""What is put into the hosts."""
