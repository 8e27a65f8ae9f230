"""AWS's API: clients and errors, what is deployed, prices, and the limits on workers."""
