"""A `vllm serve` command line: read as vLLM's parser will, changed word by word, written. May import geometry and capacity."""
