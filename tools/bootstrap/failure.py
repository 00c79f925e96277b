"""The one exception of the tools: something a person has to do, said in one message."""


class BootstrapError(Exception):
    """What is missing or failed, with the next step. Printed without a traceback; the exit code is 1."""
