"""What runs on the laptop behind the tasks: it finds the cluster, talks to its master, and shows what a run does."""
