"""The files that an engine pod reads: the model's config.json, and for vLLM what the pod was planned with."""

import json
from typing import Any

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan
from hisparse_operator.planning.vllm_request import planned_config
from hisparse_runtime.vllm.pod_plan import CONFIG_FILE, PLAN_FILE, pod_plan_to_json


def config_map(owner: HiSparseDeployment, *, plan: Plan) -> dict[str, Any]:
    model = owner.spec.model
    if plan.pod is None:
        files = {CONFIG_FILE: model.config}
    else:
        files = {CONFIG_FILE: planned_config(model), PLAN_FILE: pod_plan_to_json(plan.pod)}
    data = {name: json.dumps(content, indent=1, sort_keys=True) for name, content in files.items()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": data}
