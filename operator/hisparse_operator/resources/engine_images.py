"""Which image an engine runs."""

from dataclasses import dataclass

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan

VERSION_MARK = "{version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineImages:
    """Images of objects that name none. In `vllm`, VERSION_MARK stands for vLLM's minor version, such as 0.33."""

    embedded: str
    vllm: str

    def of(self, owner: HiSparseDeployment, *, plan: Plan) -> str:
        """The image of the object's engine."""
        if owner.spec.engine.image is not None:
            return owner.spec.engine.image
        return self.embedded if plan.pod is None else self.vllm.replace(VERSION_MARK, plan.pod.vllm_version)
