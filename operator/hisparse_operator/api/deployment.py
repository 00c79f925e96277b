"""One HiSparseDeployment as it comes from the API server."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError

from hisparse_operator.api.spec import HiSparseDeploymentSpec
from hisparse_operator.api.status import HiSparseDeploymentStatus


class InvalidObjectError(ValueError):
    """`spec` does not follow the schema; the message names each field. Seen when CRD and operator differ in version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiSparseDeployment:
    """The parts that a reconcile needs. `status` is None when there is none yet or when it cannot be read."""

    name: str
    namespace: str
    uid: str
    generation: int
    deletion_timestamp: str | None
    spec: HiSparseDeploymentSpec
    status: HiSparseDeploymentStatus | None

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Reads the object from its JSON form. Raises InvalidObjectError."""
        metadata = body["metadata"]
        try:
            spec = HiSparseDeploymentSpec.model_validate(body.get("spec", {}))
        except ValidationError as error:
            raise InvalidObjectError(_one_line(error)) from error
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata["uid"],
            generation=metadata["generation"],
            deletion_timestamp=metadata.get("deletionTimestamp"),
            spec=spec,
            status=_readable_status(body.get("status")),
        )

    @property
    def key(self) -> str:
        """namespace/name: how planning and the caches name the object."""
        return f"{self.namespace}/{self.name}"


def _readable_status(status: Mapping[str, Any] | None) -> HiSparseDeploymentStatus | None:
    if not status:
        return None
    try:
        return HiSparseDeploymentStatus.model_validate(status)
    except ValidationError:
        # Status is derived and written whole each time: one of another version is replaced, and must not stop
        # the object from being served meanwhile.
        return None


def _one_line(error: ValidationError) -> str:
    faults = [f"spec.{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors(include_url=False)]
    return f"{'; '.join(faults)}: correct them, or install this operator's CRD (`hisparse crd | kubectl apply -f -`)"
