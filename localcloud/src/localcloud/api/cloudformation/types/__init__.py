"""Resource types: their supported properties, and how to create, update and delete each resource."""
