"""How a vLLM is asked for HiSparse: releases by a KV connector, the branch of the announcement by its attention config."""

from collections.abc import Collection
from enum import StrEnum

from hisparse_runtime.geometry import vllm_version

BRANCH_NAME = "hisparse-glm"


class Dialect(StrEnum):
    """Where `host_pool_gib` is written.

    CONNECTOR: in the extra config of a HiSparseConnector, 0.30 and later. BRANCH: in `hisparse_config`, and the connector
    comes by itself beside the one that is configured.
    """

    CONNECTOR = "connector"
    BRANCH = "hisparse-glm"


def dialect_of_version(text: str) -> Dialect:
    """For `0.33`, `v0.32.1`; or for builds of the branch, which have its name in theirs. Raises UnknownVersionError."""
    if "hisparse" in text.lower():
        return Dialect.BRANCH
    vllm_version(text)
    return Dialect.CONNECTOR


def dialect_of_fields(hisparse_config_fields: Collection[str]) -> Dialect:
    """For an installed vLLM, by the fields of its HiSparseConfig: surer than its version's name."""
    return Dialect.BRANCH if "host_pool_gib" in hisparse_config_fields else Dialect.CONNECTOR
