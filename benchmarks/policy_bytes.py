"""What a page costs in memory: measured on a scheduler that has computed one long prompt, all of it still on the device."""

import gc
import tracemalloc

from benchmarks.policy_cases import MAX_NUM_BATCHED_TOKENS
from hisparse_runtime.policy import HiSparseMemory, PolicySettings
from hisparse_runtime.scheduling import Request, Scheduler, SchedulerSettings, StepResult
from tests.contract.workloads import PAGE_TOKENS

_HOT_BLOCKS_PER_GROUP = 2
# Some arrays have a power of two as their length: at these two sizes they are equally full.
_FEW_PAGES, _MANY_PAGES = 512, 4096


def bytes_per_page(num_groups: int) -> float:
    """Of a page that is resident, published and copied, in pools that hold nothing else: all that a longer prompt takes more of.

    Not its tokens, which are the caller's.
    """
    more = _bytes(num_groups, _MANY_PAGES) - _bytes(num_groups, _FEW_PAGES)
    return more / (_MANY_PAGES - _FEW_PAGES)


def _bytes(num_groups: int, num_pages: int) -> int:
    max_model_len = (num_pages + 1) * PAGE_TOKENS
    request = Request(
        request_id="long", tokens=[7] * (num_pages * PAGE_TOKENS), num_prompt_tokens=num_pages * PAGE_TOKENS, max_tokens=2
    )
    gc.collect()
    tracemalloc.start()
    policy = PolicySettings(
        num_groups=num_groups,
        page_tokens=PAGE_TOKENS,
        num_device_blocks=1 + (1 + num_groups) * (num_pages + 1) + num_groups * _HOT_BLOCKS_PER_GROUP,
        num_host_blocks=num_pages + 2,
        hot_blocks_per_group=_HOT_BLOCKS_PER_GROUP,
        window_pages=num_pages,
        max_model_len=max_model_len,
    )
    scheduler = Scheduler(
        SchedulerSettings(
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS, max_num_seqs=1, max_model_len=max_model_len, page_tokens=PAGE_TOKENS
        ),
        HiSparseMemory(policy),
    )
    scheduler.add(request)
    while request.num_computed < request.num_prompt_tokens:
        plan = scheduler.schedule()
        # Without its first token, for which the list of tokens would move.
        scheduler.update(plan, StepResult(tokens={}, completed=[each.transfer_id for each in plan.changes.transfers]))
    del plan
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size
