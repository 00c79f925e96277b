"""What upstream does not tell of itself: residency of a running vLLM on its own /metrics, and a /metrics page as one report.

`connector` is loaded by vLLM and is the one place here that may import vLLM, with `stats` and `prometheus` behind it; all else is
free of it. Nothing of ours that is heavy: this runs in the engine's own processes. Modules are imported one by one.
"""
