"""The AWS API of the embedded cloud: moto's server with corrections, and a separate CloudFormation."""
