"""Resource types: the properties that are honoured, and how a resource is made, changed and removed."""
