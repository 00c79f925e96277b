"""What all models of the spec have in common."""

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.alias_generators import to_camel


class SpecModel(BaseModel):
    """camelCase outside, snake_case inside, nothing unknown, nothing changed after parsing."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


def rule(rule: str, message: str) -> dict[str, JsonValue]:
    """A CEL rule of the CRD. What it says is said once more by the model's own validator, for other versions of the CRD."""
    return {"rule": rule, "message": message, "reason": "FieldValueInvalid"}
