"""What the policy asks an executor to copy."""

from dataclasses import dataclass
from enum import StrEnum


class CopyDirection(StrEnum):
    STORE = "store"  # device -> offload tier
    LOAD = "load"  # offload tier -> device


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerCopy:
    """One page of indexer keys, before the forward pass. Copies run in the order of planning: a block may be read by one and
    written by the next."""

    direction: CopyDirection
    device_block: int
    offload_block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteBack:
    """One sealed page of latents to the host, after the forward pass that fills it. To be acknowledged by `transfer_id`."""

    transfer_id: int
    device_block: int
    host_block: int
