"""vLLM's scheduler as the driver of traces wants it: requests in, outputs of a worker in, decisions out."""

from importlib import import_module
from typing import Any

from tests.contract.trace_driver import Output, Scheduled
from tests.contract.traces import Limits, Step
from tests.contract.upstream_side.scheduling_engine import build_engine
from tests.contract.upstream_side.scheduling_import import PARAMETER
from tests.contract.upstream_side.scheduling_observer import Observer
from tests.contract.workloads import Request, Settings


class UpstreamScheduler:
    """See `tests.contract.trace_driver.DrivenScheduler`."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._engine = settings, build_engine(settings)
        self.scheduler = self._engine.scheduler
        self._hisparse = self._connector("HiSparseConnector")
        self._offloading = self._connector("OffloadingConnector")
        self.coordinator = None if self._hisparse is None else self._hisparse.connector_scheduler.coordinator
        offload_manager = None if self._offloading is None else self._offloading.connector_scheduler.manager
        self._observer = Observer(self.scheduler, self.coordinator, offload_manager)
        self._requests: dict[str, Request] = {}
        self._outputs = import_module("vllm.v1.outputs")

    def _connectors(self) -> list[Any]:
        one = self.scheduler.connector
        return list(getattr(one, "_connectors", [one]))

    def _connector(self, name: str) -> Any:
        return next((item for item in self._connectors() if type(item).__name__ == name), None)

    @property
    def limits(self) -> Limits:
        scheduler, coordinator, config = self.scheduler, self.coordinator, self._engine.vllm_config
        known = {
            "gpu_blocks": scheduler.kv_cache_manager.block_pool.num_gpu_blocks,
            "lookahead_tokens": scheduler.num_lookahead_tokens,
            "reprefillable_tokens": getattr(scheduler.kv_cache_manager.coordinator, "num_reprefillable_tokens", 0),
            "max_in_flight_tokens": config.max_in_flight_tokens,
            "drops_stale_output": scheduler.requires_kv_delivery,
            "drops_last_hit_page": scheduler.use_eagle_block_drop,
        }
        if coordinator is None:
            return Limits(**known)
        return Limits(
            **known,
            num_groups=len(coordinator.resident_managers),
            host_blocks=coordinator.get_host_block_pool().num_gpu_blocks,
            hot_blocks=coordinator.hot_managers[0].blocks_per_request,
            admission_pages=coordinator.resident_managers[0].max_admission_blocks_per_request,
            watermark_blocks=coordinator.transition_watermark,
            max_transfers_per_step=coordinator.max_spill_pages,
        )

    def add(self, request: Request, *, arrival: int) -> None:
        parameters = import_module("vllm.sampling_params").SamplingParams(
            max_tokens=request.max_tokens,
            ignore_eos=True,
            temperature=0.0,
            extra_args=None if request.import_steps is None else {"kv_transfer_params": {PARAMETER: True}},
        )
        self._requests[request.id] = request
        self.scheduler.add_request(
            import_module("vllm.v1.request").Request(
                request_id=request.id,
                prompt_token_ids=request.tokens(),
                sampling_params=parameters,
                pooling_params=None,
                arrival_time=float(arrival),
                priority=request.priority,
                block_hasher=self._engine.hasher,
            )
        )

    def abort(self, request_id: str) -> None:
        status = import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self.scheduler.finish_requests(request_id, status)

    def schedule(self) -> Scheduled:
        output = self.scheduler.schedule()
        hisparse, offloading = self._metadata(output, self._hisparse), self._metadata(output, self._offloading)
        self._observer.scheduled(output, hisparse)
        if offloading is not None:
            self._observer.offloaded(offloading)
        decisions = self._observer.decisions
        # As the worker knows: the step reaches the last token that it was told of.
        samples = (name for name in output.num_scheduled_tokens if not self.scheduler.requests[name].is_prefill_chunk)
        return Scheduled(
            scheduled=decisions.scheduled,
            drafts=decisions.drafts,
            samples=frozenset(samples),
            admitted=tuple(decisions.admitted),
            transfers=tuple(decisions.transfers),
            jobs=tuple(decisions.offload_jobs),
            flushed=() if offloading is None else tuple(sorted(offloading.jobs_to_flush or ())),
            handle=(output, [] if hisparse is None else [item.transfer_id for item in hisparse.command.page_transfers]),
        )

    def update(self, scheduled: Scheduled, output: Output) -> None:
        step, sent = scheduled.handle
        names = list(step.num_scheduled_tokens)
        answer = self._outputs.ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[self._tokens(name, output.sampled[name]) for name in names],
            kv_connector_output=self._transfers(sent, output),
        )
        self.scheduler.update_from_output(step, answer)
        # In async scheduling drafts stay with the worker.
        if self._settings.num_speculative_tokens and self._settings.steps_in_flight == 1 and names:
            drafts = [[0] * self._settings.num_speculative_tokens for _ in names]
            self.scheduler.update_draft_token_ids(self._outputs.DraftTokenIds(names, drafts))

    def observe(self) -> Step:
        return self._observer.step()

    def _tokens(self, name: str, number: int) -> list[int]:
        request = self.scheduler.requests.get(name)
        first = 0 if request is None else request.num_tokens
        return [self._requests[name].token_at(first + index) for index in range(number)]

    def _metadata(self, output: Any, connector: Any) -> Any:
        """A connector's own part."""
        if connector is None:
            return None
        one = output.kv_connector_metadata
        parts = zip(self._connectors(), getattr(one, "metadata", [one]), strict=True)
        return next(part for owner, part in parts if owner is connector)

    def _transfers(self, sent: list[int], output: Output) -> Any:
        """What the connectors of the worker say. The driver numbers transfers and jobs as vLLM does."""
        if self.scheduler.connector is None:
            return None
        said = [self._said(connector, sent, output) for connector in self._connectors()]
        one = said[0]
        if self._connectors() != [self.scheduler.connector] and any(said):
            module = import_module("vllm.distributed.kv_transfer.kv_connector.v1.multi_connector")
            one = module.MultiKVConnectorWorkerMetadata(metadata=tuple(said))
        return self._outputs.KVConnectorOutput(
            finished_recving={output.arrived} if output.arrived else None, kv_connector_worker_meta=one
        )

    def _said(self, connector: Any, sent: list[int], output: Output) -> Any:
        package = "vllm.distributed.kv_transfer.kv_connector.v1"
        if connector is self._hisparse and (sent or output.completed):
            module = import_module(f"{package}.hisparse.connector")
            return module.HiSparseConnectorWorkerMetadata(dict.fromkeys(sent, 1), dict.fromkeys(output.completed, 1))
        if connector is self._offloading and output.completed_jobs:
            module = import_module(f"{package}.offloading.common")
            return module.OffloadingWorkerMetadata(completed_jobs=dict.fromkeys(output.completed_jobs, 1))
        return None
