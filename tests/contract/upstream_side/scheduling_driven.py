"""vLLM's scheduler as the driver of traces wants it: requests in, outputs of a worker in, decisions out."""

from importlib import import_module

from tests.contract.trace_driver import Output, Scheduled
from tests.contract.traces import Limits, Step
from tests.contract.upstream_side.scheduling_engine import Engine, build_engine
from tests.contract.upstream_side.scheduling_observer import Observer
from tests.contract.upstream_side.scheduling_order import keep_order
from tests.contract.upstream_side.scheduling_worker import Worker
from tests.contract.workloads import Request, Settings


class UpstreamScheduler:
    """See `tests.contract.trace_driver.DrivenScheduler`."""

    def __init__(self, settings: Settings, engine: Engine | None = None) -> None:
        self._settings, self._engine = settings, engine or build_engine(settings)
        self.scheduler = self._engine.scheduler
        keep_order(self.scheduler)
        self._worker = Worker(self.scheduler)
        hisparse, offloading = self._worker.hisparse, self._worker.offloading
        self.coordinator = None if hisparse is None else hisparse.connector_scheduler.coordinator
        offload_manager = None if offloading is None else offloading.connector_scheduler.manager
        self._observer = Observer(self.scheduler, self.coordinator, offload_manager)
        self._requests: dict[str, Request] = {}

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
        self._requests[request.id] = request
        self._engine.add(
            request.id,
            request.tokens(),
            max_tokens=request.max_tokens,
            is_imported=request.import_steps is not None,
            priority=request.priority,
            arrival=arrival,
        )

    def abort(self, request_id: str) -> None:
        status = import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
        self.scheduler.finish_requests(request_id, status)

    def schedule(self) -> Scheduled:
        output = self.scheduler.schedule()
        hisparse = self._worker.metadata(output, self._worker.hisparse)
        offloading = self._worker.metadata(output, self._worker.offloading)
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
            handle=output,
        )

    def update(self, scheduled: Scheduled, output: Output) -> None:
        """The driver numbers transfers and jobs as vLLM does."""
        step = scheduled.handle
        tokens = {name: self._tokens(name, number) for name, number in output.sampled.items()}
        arrived = [output.arrived] if output.arrived else []
        answer = self._worker.answer(
            step, tokens, completed=output.completed, completed_jobs=output.completed_jobs, arrived=arrived
        )
        self.scheduler.update_from_output(step, answer)
        # In async scheduling drafts stay with the worker.
        number = self._settings.num_speculative_tokens
        if number and self._settings.steps_in_flight == 1 and output.sampled:
            self.scheduler.update_draft_token_ids(self._worker.drafts(step, number))

    def observe(self) -> Step:
        return self._observer.step()

    def _tokens(self, name: str, number: int) -> list[int]:
        request = self.scheduler.requests.get(name)
        first = 0 if request is None else request.num_tokens
        return [self._requests[name].token_at(first + index) for index in range(number)]
