"""What `fab doctor` looks at, by topic: each checkup asks AWS and judges the answer."""
