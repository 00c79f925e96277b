"""How much longer the same work takes now and then on this machine, whoever does it: slowest steps are to be read beside that."""

import statistics
import time
from dataclasses import dataclass, field

_LENGTH = 10_000  # half a millisecond


@dataclass(slots=True)
class Pauses:
    """Milliseconds of the processor that a loop took which is always the same and uses no memory."""

    loop_ms: list[float] = field(default_factory=list)

    def measure(self, count: int) -> None:
        for _ in range(count):
            begin = time.thread_time()
            sum(number * number for number in range(_LENGTH))
            self.loop_ms.append(1e3 * (time.thread_time() - begin))

    def summary(self) -> dict[str, float]:
        return {"loop_ms": statistics.median(self.loop_ms), "slowest_loop_ms": max(self.loop_ms)}
