"""The keys of `cdk.json`, context.cluster, by what they describe. Standard library only."""
