"""Auto Scaling, where moto departs from it."""
