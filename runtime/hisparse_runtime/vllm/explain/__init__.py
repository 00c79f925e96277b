"""What is wrong with a command line, when vLLM would find out, and the one that works. Uses command_line and capacity."""
