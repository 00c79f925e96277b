"""OpenAI-compatible HTTP in front of an EngineLoop. FastAPI is imported here and nowhere below."""

from hisparse_runtime.engine.server.app import create_app

__all__ = ["create_app"]
