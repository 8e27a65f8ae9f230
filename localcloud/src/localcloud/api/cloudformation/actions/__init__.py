"""The actions of CloudFormation's API."""
