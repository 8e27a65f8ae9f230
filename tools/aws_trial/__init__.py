"""A trial on a real AWS account: deploy, train, compare with the embedded cloud, destroy, report (`make test-aws`)."""
