"""Deployments: change sets and what they mean, the CDK CLI, the key pair, and what outlives a stack."""
