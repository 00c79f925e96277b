"""The part of the spec that goes to the pods as it is."""

import re
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from hisparse_operator.api.spec_model import SpecModel, rule

_VALUE_WITH_EXISTS = "value must be left out when operator is Exists, which tolerates every value"
_NO_KEY = "operator must be Exists when key is left out, which tolerates every taint"
_SECONDS = "tolerationSeconds needs effect NoExecute: nothing else evicts a running pod"
_ONE_VALUE = "give value or valueFrom, one of them"
# Names by which vLLM, Hugging Face and cloud clients read what nobody else may see.
_SECRET_NAME = "(TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)$"  # noqa: S105 - a pattern of names
_SECRET_BY_REFERENCE = "give a secret by valueFrom.secretKeyRef: a value stands in the object for all who may read it"  # noqa: S105 - a message

# An object of a pod's own API: kept as it is, and checked when the Deployment is applied.
_Free = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True})]
LabelValue = Annotated[str, StringConstraints(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")]


class Toleration(SpecModel):
    """A taint that the pods tolerate, as in a pod's spec."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''", _VALUE_WITH_EXISTS
                ),
                rule("(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')", _NO_KEY),
                rule("!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')", _SECONDS),
            ]
        }
    )

    key: str | None = Field(
        default=None, max_length=316, description="Key of the taint. Left out, with operator Exists: every taint."
    )
    operator: str | None = Field(
        default=None, pattern="^(Exists|Equal)$", description="Exists: any value. Equal (default): this value."
    )
    value: str | None = Field(default=None, max_length=63, description="Value of the taint.")
    effect: str | None = Field(
        default=None,
        pattern="^(NoSchedule|PreferNoSchedule|NoExecute)$",
        description="Effect of the taint. Left out: every effect.",
    )
    toleration_seconds: int | None = Field(
        default=None, description="How long a NoExecute taint is tolerated. Left out: for ever."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.operator == "Exists" and self.value:
            raise ValueError(_VALUE_WITH_EXISTS)
        if not self.key and self.operator != "Exists":
            raise ValueError(_NO_KEY)
        if self.toleration_seconds is not None and self.effect != "NoExecute":
            raise ValueError(_SECONDS)
        return self


class EnvironmentVariable(SpecModel):
    """As in a pod's spec."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule("has(self.value) != has(self.valueFrom)", _ONE_VALUE),
                rule(f"!has(self.value) || !self.name.matches('{_SECRET_NAME}')", _SECRET_BY_REFERENCE),
            ]
        }
    )

    name: str = Field(min_length=1, max_length=128, pattern="^[A-Za-z_][A-Za-z0-9_]*$", description="Name of the variable.")
    value: str | None = Field(default=None, max_length=4096, description="Its value. Secrets are given by valueFrom.")
    value_from: dict[str, Any] | None = Field(
        default=None,
        description="Where the value comes from: secretKeyRef, configMapKeyRef, fieldRef, as in a pod's spec.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.value is None) == (self.value_from is None):
            raise ValueError(_ONE_VALUE)
        if self.value is not None and re.search(_SECRET_NAME, self.name):
            raise ValueError(_SECRET_BY_REFERENCE)
        return self


class SecretName(SpecModel):
    name: str = Field(min_length=1, max_length=253, description="Name of a Secret in the object's namespace.")


class Pod(SpecModel):
    """What a pod gets beside the engine's plan, in the fields of a pod's spec. Its API server checks them."""

    env: list[EnvironmentVariable] = Field(default=[], max_length=64, description="Environment variables of the engine.")
    volumes: list[_Free] = Field(default=[], max_length=32, description="Volumes, for weights and caches.")
    volume_mounts: list[_Free] = Field(default=[], max_length=32, description="Where the engine's container has them.")
    image_pull_secrets: list[SecretName] = Field(default=[], max_length=16, description="Secrets to pull the image with.")
    service_account_name: str | None = Field(default=None, max_length=253, description="Service account of the pods.")
    runtime_class_name: str | None = Field(default=None, max_length=253, description="Runtime class, such as nvidia.")
    priority_class_name: str | None = Field(default=None, max_length=253, description="Priority class of the pods.")
    affinity: _Free = Field(default={}, description="Affinity of the pods.")
    labels: dict[str, LabelValue] = Field(default={}, max_length=32, description="More labels of the pods.")
    annotations: dict[str, str] = Field(default={}, max_length=32, description="More annotations of the pods.")
