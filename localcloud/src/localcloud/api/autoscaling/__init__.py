"""Corrections of moto's Auto Scaling."""
