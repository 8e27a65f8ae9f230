"""IAM, where moto departs from it."""
