"""The infrastructure: one configuration, and the CDK stacks made from it."""
