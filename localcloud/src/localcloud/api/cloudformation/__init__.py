"""CloudFormation: templates checked whole before anything is made, resources made through the API, waited for, undone.

moto has a CloudFormation too, but it makes whatever it can of a template within one request: no waiting for signals, no
roll-back, replacement where AWS updates in place, and silence about types and properties that it does not know.
"""
