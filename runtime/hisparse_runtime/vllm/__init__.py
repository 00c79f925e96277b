"""What released vLLM is told, and what it makes of it.

May import geometry and capacity; never torch, and never vLLM itself. Modules are imported one by one: nothing is exported here.
"""
