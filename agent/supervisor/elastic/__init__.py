"""Elastic runs on the master: the hosts that their launcher has, and those that join."""
