"""The AWS API of the embedded cloud: moto's server, corrected where it departs from AWS, and a CloudFormation of its own."""
