"""The first process of an engine container: preflight, the engine as its child, probes and drain beside it.

Must answer within a second of its start, so it imports neither torch nor vLLM nor a web framework.
"""
