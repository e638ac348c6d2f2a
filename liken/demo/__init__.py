"""`liken demo`: the real daemon on a recorded machine, in private namespaces, beside an in-memory API server.

A second composition root; nothing else of liken knows that it exists.
"""
