"""The `hisparse` command. Each sub-command imports what it needs when it runs, so that none pays for another's dependencies."""

from hisparse_runtime.cli.main import app

__all__ = ["app"]
