"""Elastic training: the ranks that are left go on with what they have in memory, and further ones join them."""
