"""The local web page of `fab dashboard`: readers of the cluster, pages, and a server on the loopback interface."""
