"""Corrections of moto's EC2."""
