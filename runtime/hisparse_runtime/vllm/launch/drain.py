"""`python3 -m hisparse_runtime.vllm.launch.drain SECONDS`: a pod's command before it is stopped.

Readiness is pulled, and the routers have their SECONDS until this returns and SIGTERM comes. The time passes even where the
launcher cannot be reached: what is about to be stopped must not be stopped sooner for that.
"""

import sys
import time
import urllib.request

from hisparse_runtime.vllm.pod_plan import STATUS_PORT

_ANSWER_SECONDS = 5.0


def drain(seconds: float, *, port: int = STATUS_PORT) -> int:
    """Exit code 1 when readiness could not be pulled."""
    began = time.monotonic()
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/drain?seconds={seconds}", timeout=seconds + _ANSWER_SECONDS).close()
    except OSError as error:
        # a preStop command's output stands in the event of its failure
        sys.stderr.write(f"the launcher did not answer: {error}\n")
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(drain(float(sys.argv[1])))
