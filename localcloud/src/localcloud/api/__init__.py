"""The AWS API of the embedded cloud: moto's server, corrected where it departs from AWS, and its own CloudFormation."""
