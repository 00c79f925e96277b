"""Random workloads, each from its number: small pools, so that pages get lost, pools fill up and requests are preempted."""

import random
from dataclasses import dataclass
from typing import Literal, get_args

from tests.contract.workloads import PAGE_TOKENS, Abort, Arrival, MemoryMode, Request, Segment, Settings, Workload

Kind = Literal[
    "pressure", "host", "turns", "imports", "speculation", "priority", "aborts", "burst", "starved", "offload", "preempt"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
TOP_K = {"groups-1": 128, "groups-2": 256, "groups-3": 64, "groups-4": 128, "deepseek-v3.2": 2048, "glm-5.3": 2048}
GROUPS = {"groups-1": 1, "groups-2": 2, "groups-3": 3, "groups-4": 4, "deepseek-v3.2": 6, "glm-5.3": 20}
MAX_STEPS = 120


def random_workload(kind: Kind, seed: int) -> Workload:
    """Each kind makes one thing happen often, and lets the others happen too.

    `burst`: more pages in a step than transfers may be planned in one. `starved`: a step has no room for all that run.
    """
    chance = random.Random(f"scheduler workload {kind} {seed}")  # noqa: S311  reproducible, not secret
    return _Draw(chance, kind, seed).workload()


@dataclass(frozen=True, slots=True)
class _Draw:
    chance: random.Random
    kind: Kind
    seed: int

    def workload(self) -> Workload:
        chance = self.chance
        is_small = self.kind in ("burst", "starved", "preempt")
        large = chance.random() < 0.15 and not is_small
        max_prompt = chance.choice([300, 500] if is_small else [3000, 6000] if large else [300, 700, 1500, 2500])
        arrivals = (
            self._turns(max_prompt) if self.kind in ("turns", "offload") or chance.random() < 0.4 else self._strangers(max_prompt)
        )
        longest = max(item.request.prompt_tokens + item.request.max_tokens for item in arrivals)
        return Workload(
            name=f"{self.kind}-{self.seed}",
            settings=self._settings(longest, large=large),
            arrivals=tuple(arrivals),
            aborts=tuple(self._aborts(arrivals)),
            max_steps=MAX_STEPS,
        )

    def _settings(self, longest: int, *, large: bool) -> Settings:
        chance, kind = self.chance, self.kind
        model = chance.choice(["deepseek-v3.2", "glm-5.3"] if large else ["groups-1", "groups-2", "groups-3", "groups-4"])
        num_speculative_tokens = chance.choice([1, 2, 3]) if kind in ("speculation", "starved") or chance.random() < 0.1 else 0
        steps_in_flight: Literal[1, 2] = chance.choice((1, 2))
        max_num_batched_tokens = chance.choice(
            {"burst": [1024, 2048], "starved": [16, 24, 40]}.get(kind, [512, 1024, 2048] if large else [128, 192, 256, 512, 777])
        )
        max_model_len = longest + chance.choice([0, 1, 64, 500])
        min_rows = (1 + num_speculative_tokens) * TOP_K[model]
        hot_rows = chance.choice([None, None, min_rows, min_rows + 64])
        groups = GROUPS[model] + (1 if num_speculative_tokens else 0)
        hot_blocks = -(-(hot_rows or min_rows + TOP_K[model]) // PAGE_TOKENS)
        window = min(steps_in_flight * max_num_batched_tokens, max_model_len) // PAGE_TOKENS + 1
        largest = max_model_len // PAGE_TOKENS + 2 + groups * (window + hot_blocks + 2)
        tight, roomy = [1.05, 1.1, 1.3, 1.6], [1.5, 2.5, 4.0]
        gpu_factor = chance.choice(
            tight if kind in ("pressure", "priority", "offload", "preempt") or chance.random() < 0.4 else roomy
        )
        host_factor = chance.choice([1.0, 1.0, 1.2, 1.5] if kind == "host" else [1.5, 3.0, 8.0])
        mode: MemoryMode = "preempt" if kind == "preempt" else "hisparse"
        if kind == "offload":
            mode = chance.choice(("offload", "hisparse"))
        with_hisparse = mode == "hisparse"
        if not with_hisparse:
            largest = max_model_len // PAGE_TOKENS + 2
            if kind == "preempt":  # several requests that fit at first, and outgrow the pool
                gpu_factor = chance.choice([1.05, 1.5, 2.0])
        return Settings(
            model=model,
            mode=mode,
            gpu_blocks=int(largest * gpu_factor) + 1,
            host_blocks=int((-(-max_model_len // PAGE_TOKENS) + 2) * host_factor) + 1 if with_hisparse else None,
            hot_rows=hot_rows if with_hisparse else None,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=8 if kind in ("burst", "starved", "preempt") else chance.choice([2, 4, 8]),
            max_model_len=max_model_len,
            steps_in_flight=steps_in_flight,
            ack_delay_steps=chance.choice([0, 1, 1, 2, 3]),
            num_speculative_tokens=num_speculative_tokens,
            policy="priority" if kind == "priority" or chance.random() < 0.1 else "fcfs",
            prefix_caching=kind == "offload" or chance.random() < 0.95,  # vLLM's offloading fails without, beside HiSparse
            imports=kind == "imports",
            offload_pages=int(longest / PAGE_TOKENS * chance.choice([0.7, 1.5, 4])) + 1 if kind == "offload" else None,
        )

    def _strangers(self, max_prompt: int) -> list[Arrival]:
        """Requests that come on their own; some share a prefix, of whole pages or not."""
        chance = self.chance
        shared = chance.randrange(0, max_prompt, chance.choice([1, 64]))
        arrivals = []
        for number in range(12 if self.kind == "burst" else chance.randint(3, 9)):
            length = chance.randint(max_prompt // 8 + 1, max_prompt)
            segments = [Segment(number + 1, length)]
            if chance.random() < 0.5 and 0 < shared < length:
                segments.insert(0, Segment(0, shared))
            arrivals.append(
                Arrival(step=chance.choice([0, 0, chance.randint(0, 40)]), request=self._request(f"r{number}", segments))
            )
        return arrivals

    def _turns(self, max_prompt: int) -> list[Arrival]:
        """Conversations: a turn extends the answer before it, or part of it."""
        chance = self.chance
        arrivals = []
        for talk in range(chance.randint(2, 4)):
            length, before = chance.randint(max_prompt // 8 + 1, max_prompt // 2), None
            prompt = [Segment(talk, length)]
            for turn in range(chance.randint(2, 4)):
                request = self._request(f"t{talk}.{turn}", prompt)
                step = chance.randint(0, 20) if before is None else chance.randint(1, 6)
                arrivals.append(Arrival(step=step, request=request, after=before))
                before, end = request.id, request.prompt_tokens + request.max_tokens
                # Answers follow the last stream: the same one continued, or another question after part of the answer.
                stream = prompt[-1].stream
                prompt = [*prompt[:-1], Segment(stream, end)]
                if chance.random() < 0.6:
                    kept = chance.randint(request.prompt_tokens, end)
                    prompt[-1] = Segment(stream, kept)
                    prompt.append(Segment(100 + 10 * talk + turn, kept + chance.randint(1, max_prompt // 6)))
        return arrivals

    def _request(self, name: str, prompt: list[Segment]) -> Request:
        chance = self.chance
        return Request(
            id=name,
            prompt=tuple(prompt),
            max_tokens=chance.randint(80, 200)
            if self.kind == "preempt"
            else chance.choice([1, 2, chance.randint(3, 20), chance.randint(20, 90)]),
            priority=chance.randint(0, 3),
            accepted=tuple(chance.randint(0, 3) for _ in range(chance.randint(1, 5))),
            import_steps=chance.randint(0, 8) if self.kind == "imports" and chance.random() < 0.7 else None,
        )

    def _aborts(self, arrivals: list[Arrival]) -> list[Abort]:
        chance = self.chance
        if self.kind == "imports":  # soon enough to come before the KV
            chosen = [item for item in arrivals if item.after is None and chance.random() < 0.3]
            return [self._abort(item.request.id, item.step + chance.randint(0, 4)) for item in chosen]
        share = 0.6 if self.kind == "aborts" else 0.05
        return [self._abort(item.request.id, chance.randint(1, 40)) for item in arrivals if chance.random() < share]

    def _abort(self, name: str, step: int) -> Abort:
        return Abort(step=step, id=name, while_running=self.chance.random() < 0.5)
