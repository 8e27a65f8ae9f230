"""Deployments: change sets and their effects, the CDK CLI, the key pair, and the data that remains after a stack."""
