"""The model's config.json, as the engine reads it."""

import json
from typing import Any

from hisparse_operator.api import HiSparseDeployment

CONFIG_FILE = "config.json"
CONFIG_FOLDER = "/etc/hisparse"


def config_map(owner: HiSparseDeployment) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {},
        "data": {CONFIG_FILE: json.dumps(owner.spec.model.config, indent=1, sort_keys=True)},
    }
