"""AWS's API: clients and errors, the deployed resources, prices, and the limits on workers."""
