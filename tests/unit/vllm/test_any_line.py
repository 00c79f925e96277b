"""Whatever is typed, there is an answer: no traceback, and what is said to work is right by the same rules."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from hisparse_runtime.vllm.command_line.connectors import KNOWN
from hisparse_runtime.vllm.explain.explanation import explain
from tests.unit.vllm.lines import glm, table

KEYS = (
    *("kv_connector", "kv_role", "kv_connector_extra_config", "connectors", "host_pool_gib", "cpu_bytes_to_use", "spec_name"),
    *("hisparse_config", "device_buffer_size", "eager_host_mirror", "cudagraph_mode", "method", "num_speculative_tokens"),
    *("store_threshold", "block_size", "blocks_per_chunk", "eviction_policy", "secondary_tiers", "kv_load_failure_policy", "x"),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 100_000),
    st.floats(allow_nan=True, allow_infinity=True, width=16),
    st.sampled_from([*KNOWN, "kv_both", "kv_producer", "384", "384GiB", "mtp", "FULL", "TieringOffloadingSpec", "lru", ""]),
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)),
    max_leaves=12,
)
CONNECTOR = st.fixed_dictionaries(
    {"kv_connector": st.sampled_from(KNOWN)},
    optional={"kv_role": st.sampled_from(["kv_both", "x"]), "kv_connector_extra_config": JSON},
)
TRANSFER = st.one_of(
    JSON,
    CONNECTOR,
    st.builds(
        lambda children: {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"connectors": children},
        },
        st.one_of(JSON, st.lists(st.one_of(CONNECTOR, JSON), max_size=3)),
    ),
)
NAMES = st.sampled_from(sorted(table().by_name))
VALUES = st.one_of(
    st.integers(-2, 9).map(str),
    st.sampled_from(["8K", "auto", "x", "", "1.5", "{", "{'a': 1}", "-1", "--port", "a.b"]),
    JSON.map(json.dumps),
)
OPTIONS = st.one_of(
    TRANSFER.map(lambda value: ["--kv-transfer-config", json.dumps(value)]),
    JSON.map(lambda value: ["--attention-config", json.dumps({"hisparse_config": value})]),
    JSON.map(lambda value: ["-cc", json.dumps({"cudagraph_mode": value})]),
    JSON.map(lambda value: ["--speculative-config", json.dumps(value)]),
    st.tuples(NAMES, VALUES).map(list),
    st.tuples(NAMES, VALUES).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
    st.tuples(NAMES, st.lists(st.sampled_from(KEYS), min_size=1, max_size=2), VALUES).map(
        lambda three: [f"{three[0]}.{'.'.join(three[1])}", three[2]]
    ),
    VALUES.map(lambda value: [value]),
)


@given(
    st.lists(OPTIONS, max_size=5),
    st.sampled_from(["0.30", "0.31", "0.32", "0.33"]),
    st.sampled_from([None, "H200", "B200", "MI300X"]),
)
@settings(max_examples=400, deadline=None)
def test_every_line_is_explained(options: list[list[str]], version: str, kind: str | None) -> None:
    words = ["vllm", "serve", "m", *(word for option in options for word in option)]
    knowledge = glm(version, kind=kind)
    found = explain(words, knowledge)
    assert found.command == tuple(words)
    if found.working is not None:
        again = explain(found.working, knowledge)
        assert again.is_accepted
        assert again.working == found.working
