"""Fixtures of the engine's tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hisparse_runtime.engine.model_config import ModelConfig, read_model_config
from tests.unit.engine.bare_engine import CONFIG, BareEngine, make_options


@pytest.fixture
def raw_config() -> dict[str, Any]:
    return dict(CONFIG)


@pytest.fixture
def config() -> ModelConfig:
    return read_model_config(CONFIG)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    return path


@pytest.fixture
def make_engine(config: ModelConfig) -> Callable[..., BareEngine]:
    def make(**sizes: Any) -> BareEngine:
        return BareEngine(config, make_options(**sizes))

    return make
