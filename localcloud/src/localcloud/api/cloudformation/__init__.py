"""CloudFormation that validates whole templates, creates resources through the API, waits for them and rolls back.

moto also has a CloudFormation. It creates as much of a template as it can within one request, without signals or
rollback. It replaces resources that AWS updates in place, and silently ignores unknown types and properties.
"""
