"""Everything that talks to the Kubernetes API: login, server-side apply, list+watch, the caches and the queue they wake.

Knows nothing of plans, conditions or engines: what an object means is decided above.
"""
