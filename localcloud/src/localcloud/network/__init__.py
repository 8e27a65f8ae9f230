"""Networks made of Linux network namespaces: the internet, a router for each VPC, and the services at its addresses."""
