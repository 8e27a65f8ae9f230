"""EC2, where moto departs from it."""
