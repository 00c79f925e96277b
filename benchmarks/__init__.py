"""What is measured, and against what: `python -m benchmarks.<name> [--quick] [--json FILE]`, whose last line is the figure."""
