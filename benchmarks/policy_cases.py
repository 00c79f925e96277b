"""The load under which scheduler steps are timed, for vLLM's scheduler and ours alike. Pure.

Requests arrive with their prompt computed elsewhere, so that no time goes into prefills that nobody measures: with HiSparse all
of it lies on the host, but for the last page, and each request has a hot region. Phase "decode": all of them generate. Phase
"prefill": all but one do, and that one is computed here, chunk by chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tests.contract.workloads import PAGE_TOKENS, Settings

Phase = Literal["decode", "prefill"]
MODELS = {6: "deepseek-v3.2", 20: "glm-5.3"}  # by number of groups
HOT_ROWS = 4096
MAX_NUM_BATCHED_TOKENS = 8192
STEPS_IN_FLIGHT: Literal[1, 2] = 1
# Pages beyond what is needed: prefills go through them, and lose what they leave.
SPARE_PAGES = 512
GENERATED_TOKENS = 1 << 14  # more than any measurement takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`num_pages` of context each; `with_hisparse` false: the ordinary scheduler, which HiSparse's cost is measured against."""

    phase: Phase
    num_requests: int
    num_pages: int
    num_groups: int
    with_hisparse: bool

    @property
    def settings(self) -> Settings:
        """Every request fits. Prefilling pages get lost, as on a GPU that is full."""
        pages = self.num_pages + GENERATED_TOKENS // PAGE_TOKENS + 1
        num_hot_blocks = self.num_groups * HOT_ROWS // PAGE_TOKENS
        window = MAX_NUM_BATCHED_TOKENS // PAGE_TOKENS + 8
        hisparse_blocks = self.num_requests * (num_hot_blocks + 8 * self.num_groups) + self.num_groups * (window + SPARE_PAGES)
        return Settings(
            model=MODELS[self.num_groups],
            mode="hisparse" if self.with_hisparse else "preempt",
            gpu_blocks=(self.num_requests + 1) * pages + (hisparse_blocks if self.with_hisparse else 0),
            host_blocks=(self.num_requests + 1) * pages + 2 if self.with_hisparse else None,
            max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
            max_num_seqs=max(self.num_requests, 2),
            max_model_len=pages * PAGE_TOKENS,
            steps_in_flight=STEPS_IN_FLIGHT,
            ack_delay_steps=0,
            imports=True,
        )

    @property
    def is_large(self) -> bool:
        """Whether vLLM's schedulers with HiSparse and without it do not fit beside each other into 24 GiB."""
        return self.num_requests * self.num_pages > 1 << 21

    @property
    def num_imported(self) -> int:
        """Requests whose prompt is there from the start."""
        return self.num_requests - (1 if self.phase == "prefill" else 0)

    def prompt(self, number: int) -> list[int]:
        """A prompt of one token over and over, and another one for each request: it costs eight bytes a token."""
        return [1000 + number] * (self.num_pages * PAGE_TOKENS)


def cases(*, quick: bool) -> Iterator[Case]:
    """Each with HiSparse, then the same without."""
    requests, pages = ((1, 64), (1250,)) if quick else ((1, 16, 64, 256), (1250, 16384))
    for phase in ("decode", "prefill"):
        for num_groups in MODELS:
            for num_requests in requests:
                for num_pages in pages:
                    for with_hisparse in (True, False):
                        yield Case(
                            phase=phase,
                            num_requests=num_requests,
                            num_pages=num_pages,
                            num_groups=num_groups,
                            with_hisparse=with_hisparse,
                        )
