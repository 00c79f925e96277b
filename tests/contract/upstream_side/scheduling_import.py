"""Stands for a connector that pulls KV from a prefill server: a request says that its prompt was computed elsewhere, once."""

from importlib import import_module
from typing import Any

from tests.contract.upstream_side.scheduling_engine import IMPORT_PARAMETER

_base: Any = import_module("vllm.distributed.kv_transfer.kv_connector.v1.base")


class ImportConnector(_base.KVConnectorBase_V1, _base.SupportsHMA):  # type: ignore[misc]  # untyped without vLLM
    """The scheduler's half. The worker's is played by whoever reports that the KV has arrived."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """What is left of the prompt comes asynchronously."""
        if not (request.kv_transfer_params or {}).get(IMPORT_PARAMETER):
            return 0, False
        count = len(request.prompt_token_ids) - num_computed_tokens
        return count, count > 0

    def update_state_after_alloc(self, request: Any, *_: Any) -> None:
        """A request that loses its KV later computes it."""
        if request.kv_transfer_params:
            request.kv_transfer_params[IMPORT_PARAMETER] = False

    def build_connector_meta(self, *_: Any) -> Any:
        """Nobody reads it."""
        return _base.KVConnectorMetadata()

    def request_finished_all_groups(self, *_: Any) -> tuple[bool, None]:
        """Nothing is sent on, so that blocks can go at once."""
        return False, None

    def _of_the_worker(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError("there is no worker")

    start_load_kv = wait_for_layer_load = save_kv_layer = wait_for_save = _of_the_worker
