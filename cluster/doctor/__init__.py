"""What `fab doctor` looks at, by topic: each check asks AWS and judges the answer."""
