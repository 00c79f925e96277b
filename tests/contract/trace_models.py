"""config.json of the models whose schedulers are traced: published ones, and small ones in which every page is seen to move."""

from tests.contract.model_configs import DEEPSEEK_V3_2, GLM_5_3, Config


def _small(num_layers: int, *, top_k: int) -> Config:
    """Every layer has its own indexer, and with up to four layers each becomes a group of its own."""
    return DEEPSEEK_V3_2 | {"num_hidden_layers": num_layers, "first_k_dense_replace": 0, "index_topk": top_k}


MODELS: dict[str, Config] = {
    "glm-5.3": GLM_5_3,
    "deepseek-v3.2": DEEPSEEK_V3_2,
    "groups-1": _small(1, top_k=128),
    "groups-2": _small(2, top_k=256),
    "groups-3": _small(3, top_k=64),
    "groups-4": _small(4, top_k=128),
}
