"""What every room may use and what uses nothing of Verax: errors, settings, files.

Nothing here knows about networks. A helper belongs here only if two rooms that may not import
each other need it.
"""
