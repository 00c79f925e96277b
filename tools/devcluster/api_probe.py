"""Asks the API server a few questions without starting a kubectl for each: one costs 0.3 s of CPU."""

import base64
import json
import ssl
import tempfile
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 2.0


class ApiProbe:
    """Reads by GET with the client certificate of a kubeconfig that this package has written."""

    def __init__(self, *, host: str, port: int, context: ssl.SSLContext) -> None:
        self._host, self._port, self._context = host, port, context

    @classmethod
    def of_kubeconfig(cls, path: Path) -> Self:
        document = json.loads(path.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        with tempfile.NamedTemporaryFile() as pem:  # ssl takes certificate and key from a file only
            pem.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
            pem.flush()
            context.load_cert_chain(pem.name)
        address = urlsplit(cluster["server"])
        return cls(host=address.hostname or "", port=address.port or 443, context=context)

    def is_ready(self) -> bool:
        return self._get("/readyz") is not None

    def is_node_ready(self, name: str) -> bool:
        """Ready, and without the taint that keeps pods away: the two are changed by different parts."""
        text = self._get(f"/api/v1/nodes/{name}")
        if text is None:
            return False
        node: dict[str, Any] = json.loads(text)
        conditions = {condition["type"]: condition["status"] for condition in node["status"].get("conditions", [])}
        return conditions.get("Ready") == "True" and not node["spec"].get("taints")

    def has_default_service_account(self) -> bool:
        """Pods are refused before it is there."""
        return self._get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def _get(self, path: str) -> bytes | None:
        """The body, or None when the server does not answer or answers something other than 200: ask again later."""
        connection = HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._context)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (OSError, HTTPException):
            return None
        finally:
            connection.close()
        return body if response.status == 200 else None
