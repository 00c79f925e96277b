"""The embedded engine: a small sparse-MLA model on the CPU under the whole Hybrid HiSparse system, behind an OpenAI API.

Sits on top of geometry, policy, scheduling and kernels. FastAPI is used in engine.server only.
"""
