"""`python3 -m hisparse_runtime.vllm.launch --plan FILE -- vllm serve MODEL ...`: the first process of an engine container."""

import signal
import sys
from types import FrameType


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)


# Before anything else: the kernel ignores signals that the first process of a container has no handler for.
for _number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(_number, _end)


def main() -> int:
    from hisparse_runtime.vllm.launch.options import parse_options  # noqa: PLC0415 - after the handlers
    from hisparse_runtime.vllm.launch.parts import vllm_parts  # noqa: PLC0415 - after the handlers
    from hisparse_runtime.vllm.launch.run import launch  # noqa: PLC0415 - after the handlers

    options = parse_options(sys.argv[1:])
    return launch(options, parts=vllm_parts(options.plan_file))


if __name__ == "__main__":
    sys.exit(main())
