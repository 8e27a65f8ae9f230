"""AWS's API: clients and errors, what is deployed, prices, and the guard that ends idle workers."""
