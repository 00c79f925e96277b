"""One set of credentials for both clients in the process: kubernetes.aio's (ours) and kopf's."""

import os
from datetime import UTC, datetime, timedelta

import kopf
from kubernetes.aio import client, config

# kopf does not re-read a rotated service account token by itself; each re-login closes its streams, so not much below this.
_KOPF_LOGIN_LIFETIME = timedelta(minutes=10)
# Every watch holds a connection of the pool for as long as it lives: four informers, the workers, and room for bursts.
_CONNECTIONS = 32


async def load_configuration() -> client.Configuration:
    """In a pod the service account, elsewhere the current context of the kubeconfig.

    The in-cluster loader re-reads the token file once a minute.
    """
    configuration = client.Configuration()
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config(client_configuration=configuration)
    else:
        await config.load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = _CONNECTIONS
    return configuration


def kopf_credentials(configuration: client.Configuration) -> kopf.ConnectionInfo:
    """The same server and identity in kopf's form."""
    bearer = configuration.api_key.get("BearerToken")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        scheme="Bearer" if bearer else None,
        token=bearer.split(" ", 1)[1].strip() if bearer else None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        expiration=datetime.now(UTC) + _KOPF_LOGIN_LIFETIME,
    )
