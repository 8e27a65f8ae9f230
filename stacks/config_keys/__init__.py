"""The keys of `cdk.json`, context.cluster, grouped by subject. Standard library only."""
