"""The API of HiSparseDeployment: models of spec and status, and the CustomResourceDefinition made from them.

Pure: needs pydantic and nothing of Kubernetes, so that planning and the command line can use it.
"""

from hisparse_operator.api.crd import custom_resource_definition, custom_resource_definition_yaml
from hisparse_operator.api.deployment import HiSparseDeployment, InvalidObjectError
from hisparse_operator.api.group import (
    API_VERSION,
    CATEGORIES,
    CRD_NAME,
    GROUP,
    KIND,
    NAME_MAX_CHARACTERS,
    PLURAL,
    SHORT_NAME,
    SINGULAR,
    VERSION,
)
from hisparse_operator.api.pod import Toleration
from hisparse_operator.api.quantity import quantity_bytes
from hisparse_operator.api.spec import EngineType, HiSparseDeploymentSpec
from hisparse_operator.api.status import Condition, HiSparseDeploymentStatus, PlanStatus, Residency, Summary

__all__ = [
    "API_VERSION",
    "CATEGORIES",
    "CRD_NAME",
    "GROUP",
    "KIND",
    "NAME_MAX_CHARACTERS",
    "PLURAL",
    "SHORT_NAME",
    "SINGULAR",
    "VERSION",
    "Condition",
    "EngineType",
    "HiSparseDeployment",
    "HiSparseDeploymentSpec",
    "HiSparseDeploymentStatus",
    "InvalidObjectError",
    "PlanStatus",
    "Residency",
    "Summary",
    "Toleration",
    "custom_resource_definition",
    "custom_resource_definition_yaml",
    "quantity_bytes",
]
