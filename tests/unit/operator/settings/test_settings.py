"""Every variable of the environment, right and wrong."""

import pytest

from hisparse_operator.resources import EngineImages
from hisparse_operator.settings import Settings, SettingsError

IMAGE = {"HISPARSE_EMBEDDED_IMAGE": "engine:1", "HISPARSE_VLLM_IMAGE": "vllm:{version}"}
IMAGES = EngineImages(embedded="engine:1", vllm="vllm:{version}")


def test_defaults_need_the_engine_images_only() -> None:
    assert Settings.from_environment(IMAGE) == Settings(
        images=IMAGES, watch_namespaces=(), log_level="INFO", scrape_seconds=5.0, http_port=8080
    )


def test_all_variables_are_read() -> None:
    environment = {
        "HISPARSE_EMBEDDED_IMAGE": " registry.example/engine@sha256:abc ",
        "HISPARSE_VLLM_IMAGE": "registry.example/vllm:{version} ",
        "HISPARSE_WATCH_NAMESPACES": "shop, blue,,shop",
        "HISPARSE_LOG_LEVEL": "debug",
        "HISPARSE_SCRAPE_SECONDS": "2.5",
        "HISPARSE_HTTP_PORT": "9090",
    }
    assert Settings.from_environment(environment) == Settings(
        images=EngineImages(embedded="registry.example/engine@sha256:abc", vllm="registry.example/vllm:{version}"),
        watch_namespaces=("blue", "shop"),
        log_level="DEBUG",
        scrape_seconds=2.5,
        http_port=9090,
    )


def test_an_empty_variable_is_one_that_is_not_set() -> None:
    names = ("HISPARSE_WATCH_NAMESPACES", "HISPARSE_LOG_LEVEL", "HISPARSE_SCRAPE_SECONDS", "HISPARSE_HTTP_PORT")
    assert Settings.from_environment({**IMAGE, **dict.fromkeys(names, "")}) == Settings.from_environment(IMAGE)


@pytest.mark.parametrize(("name", "value"), [("HISPARSE_SCRAPE_SECONDS", "1"), ("HISPARSE_SCRAPE_SECONDS", "30")])
def test_limits_themselves_are_allowed(name: str, value: str) -> None:
    assert Settings.from_environment({**IMAGE, name: value}).scrape_seconds == float(value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HISPARSE_EMBEDDED_IMAGE", ""),
        ("HISPARSE_VLLM_IMAGE", "  "),
        ("HISPARSE_WATCH_NAMESPACES", "shop,*"),
        ("HISPARSE_WATCH_NAMESPACES", "shop/../kube-system"),
        ("HISPARSE_WATCH_NAMESPACES", "Shop"),
        ("HISPARSE_WATCH_NAMESPACES", "x" * 64),
        ("HISPARSE_LOG_LEVEL", "LOUD"),
        ("HISPARSE_SCRAPE_SECONDS", "soon"),
        ("HISPARSE_SCRAPE_SECONDS", "0.5"),
        ("HISPARSE_SCRAPE_SECONDS", "30.1"),
        ("HISPARSE_SCRAPE_SECONDS", "nan"),
        ("HISPARSE_SCRAPE_SECONDS", "inf"),
        ("HISPARSE_HTTP_PORT", "0"),
        ("HISPARSE_HTTP_PORT", "65536"),
        ("HISPARSE_HTTP_PORT", "8080.5"),
        ("HISPARSE_HTTP_PORT", "http"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name) as error:
        Settings.from_environment({**IMAGE, name: value})
    assert "use" in str(error.value) or "give" in str(error.value) or "names" in str(error.value)


@pytest.mark.parametrize("name", IMAGE)
def test_a_missing_engine_image_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is not set"):
        Settings.from_environment({other: image for other, image in IMAGE.items() if other != name})
