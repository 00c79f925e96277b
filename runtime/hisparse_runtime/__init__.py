"""The runtime half of hisparse-operator: geometry, capacity, policy and the embedded engine.

Packages depend downwards only: geometry < capacity < policy < scheduling < engine; kernels is used by engine alone.
Nothing here imports hisparse_operator, except the command line, which sits on top of both.
"""
