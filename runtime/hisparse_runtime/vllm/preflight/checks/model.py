"""The model's own config.json against the one of the plan: pools are sized by its layers and dimensions."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from hisparse_runtime.geometry import ModelConfigError, SparseMlaModel, read_model
from hisparse_runtime.vllm.preflight.container.model_files import FoundModel
from hisparse_runtime.vllm.preflight.facts import Facts
from hisparse_runtime.vllm.preflight.findings import Finding, Reason, note, refused, warning

# No size depends on them.
_ONLY_NAMES = frozenset({"model_type", "max_position_embeddings"})


def check_model(facts: Facts, *, model: str, planned_config: Mapping[str, Any] | None) -> Finding | None:
    if planned_config is None:
        return note(Reason.MODEL_NOT_COMPARED, "the pod has no config.json of its plan: the model is taken as it is")
    if facts.model is None:
        return note(Reason.MODEL_NOT_COMPARED, f"config.json of {model or 'the model'} is not in the container yet: not compared")
    try:
        planned = read_model(planned_config)
    except ModelConfigError as error:
        return note(Reason.MODEL_NOT_COMPARED, f"the plan is for a model without sparse MLA ({error}): not compared")
    return _compared(planned, facts.model)


def _compared(planned: SparseMlaModel, model: FoundModel) -> Finding | None:
    next_step = "set spec.model.config to what the checkpoint has, or mount the checkpoint that was meant"
    try:
        found = read_model(model.config)
    except ModelConfigError as error:
        return refused(Reason.MODEL_DIFFERS_FROM_PLAN, f"{model.path}: {error}; the plan has such a model: {next_step}")
    differences = dict(_differences(planned, found))
    if not differences:
        return None
    message = f"{model.path} differs from the plan: {'; '.join(differences.values())}: {next_step}"
    if differences.keys() <= _ONLY_NAMES:
        return warning(Reason.MODEL_DIFFERS_FROM_PLAN, message)
    return refused(Reason.MODEL_DIFFERS_FROM_PLAN, message)


def _differences(planned: SparseMlaModel, found: SparseMlaModel) -> Iterator[tuple[str, str]]:
    for field in fields(SparseMlaModel):
        name = field.name
        if name == "owns_indexer":
            continue
        ours, theirs = getattr(planned, name), getattr(found, name)
        if ours != theirs:
            yield name, f"{name} is {_text(theirs)}, planned {_text(ours)}"
    # a model of another length differs in every layer behind: that is said by num_hidden_layers
    layers = [
        layer
        for layer, (ours, theirs) in enumerate(zip(planned.owns_indexer, found.owns_indexer, strict=False))
        if ours is not theirs
    ]
    if layers:
        leaders = f"{sum(found.owns_indexer)} of {len(found.owns_indexer)} layers have an indexer"
        planned_leaders = f"planned {sum(planned.owns_indexer)} of {len(planned.owns_indexer)}"
        yield "owns_indexer", f"{leaders}, {planned_leaders} (layer {layers[0]} is the first that differs)"


def _text(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else repr(value)
