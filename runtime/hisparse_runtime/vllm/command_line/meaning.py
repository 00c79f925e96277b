"""What a command line says, as far as HiSparse and the memory plan depend on it."""

from dataclasses import dataclass
from typing import Any

from hisparse_runtime.vllm.command_line.connectors import HISPARSE, MULTI, Connector, read_connector
from hisparse_runtime.vllm.command_line.values import Given, given_values
from hisparse_runtime.vllm.command_line.words import CommandLine

_MTP = "mtp"
_FITTED = -1
KV_TRANSFER = "--kv-transfer-config"
ATTENTION = "--attention-config"
COMPILATION = "--compilation-config"
SPECULATION = "--speculative-config"
OFFLOADING_SIZE = "--kv-offloading-size"
# The same as keys of the speculative config.
_SPECULATION_OPTIONS = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
_GRAPH_MODES = {0: "NONE", 1: "PIECEWISE", 2: "FULL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """`values` by an option's first name. Those that vLLM's parser refuses count as not given, but for single keys in them."""

    line: CommandLine
    values: dict[str, Given]

    def value(self, name: str) -> Any:
        """None where it is not given."""
        given = self.values.get(name)
        return None if given is None else given.value

    def number(self, name: str, *, default: int) -> int:
        value = self.value(name)
        return default if not isinstance(value, int) or isinstance(value, bool) else value

    def typed(self, name: str) -> str:
        """The option as it was spelled."""
        given = self.values.get(name)
        return given.items[-1].name if given is not None else name

    def config(self, name: str) -> dict[str, Any]:
        """A JSON option's object, empty where there is none."""
        value = self.value(name)
        return value if isinstance(value, dict) else {}

    @property
    def connector(self) -> Connector | None:
        """As written: --kv-offloading-size puts another one in its place when vLLM starts."""
        config = self.config(KV_TRANSFER)
        return read_connector(config) if config else None

    @property
    def is_offloading_size_given(self) -> bool:
        return self.value(OFFLOADING_SIZE) is not None

    @property
    def hisparse_config(self) -> dict[str, Any] | None:
        """Of the attention config; an empty one switches HiSparse on, too."""
        found = self.config(ATTENTION).get("hisparse_config")
        return found if isinstance(found, dict) else None

    @property
    def hisparse_connectors(self) -> tuple[Connector, ...]:
        """Where vLLM looks for them: at the top, or as a child of the MultiConnector there."""
        connector = self.connector
        return () if connector is None else connector.named(HISPARSE)

    @property
    def has_hisparse(self) -> bool:
        return self.hisparse_config is not None or bool(self.hisparse_connectors)

    @property
    def has_hidden_hisparse(self) -> bool:
        """A HiSparseConnector in a MultiConnector in a MultiConnector: vLLM does not look that deep."""
        connector = self.connector
        return connector is not None and any(_contains(child) for child in connector.children if child.name == MULTI)

    @property
    def device_buffer_size(self) -> int | None:
        """Rows of a hot region. None: vLLM's default."""
        return whole_number((self.hisparse_config or {}).get("device_buffer_size"))

    @property
    def is_context_fitted(self) -> bool:
        """--max-model-len auto: vLLM takes the longest that it can plan."""
        return bool(self.value("--max-model-len") == _FITTED)

    @property
    def speculation(self) -> dict[str, Any]:
        """Empty without."""
        config = {key.replace("-", "_"): value for key, value in self.config(SPECULATION).items()}
        for option, key in _SPECULATION_OPTIONS.items():
            value = self.value(option)
            if value is not None:
                config.setdefault(key, value)
        return config

    @property
    def num_mtp_tokens(self) -> int:
        """Draft tokens of MTP; 0 also where another method drafts."""
        config = self.speculation
        is_mtp = str(config.get("method", "")).endswith(_MTP)
        return max(0, whole_number(config.get("num_speculative_tokens")) or 0) if is_mtp else 0

    @property
    def cudagraph_mode(self) -> str | None:
        """In capitals; None where it is not given, or CUDA graphs are off by --enforce-eager."""
        mode = self.config(COMPILATION).get("cudagraph_mode")
        if mode is None or self.value("--enforce-eager") is True:
            return None
        if isinstance(mode, str):
            return mode.upper()
        return _GRAPH_MODES.get(mode) if isinstance(mode, int) else None

    @property
    def num_gpus(self) -> int:
        """GPUs of all replicas."""
        sizes = ("--tensor-parallel-size", "--pipeline-parallel-size", "--prefill-context-parallel-size", "--data-parallel-size")
        gpus = 1
        for name in sizes:
            gpus *= max(1, self.number(name, default=1))
        return gpus


def whole_number(value: object) -> int | None:
    """As pydantic takes it: also texts of digits, and floats without a fraction; None for anything else. True counts as 1."""
    if isinstance(value, str):
        digits = value.strip()
        return int(digits) if digits.removeprefix("-").isdecimal() else None
    if isinstance(value, int):
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else None


def read_meaning(line: CommandLine) -> Meaning:
    return Meaning(line=line, values=given_values(line))


def _contains(connector: Connector) -> bool:
    return any(child.name == HISPARSE or _contains(child) for child in connector.children)
