"""Authorization of API calls: the caller, the required permissions, and whether policies allow them."""
