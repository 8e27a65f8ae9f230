"""The laptop's part of deepcdk, behind the `fab` tasks: find the cluster, run commands on its master, show its runs."""
