"""User programs: their files, their requirements, and checks whether they would train."""
