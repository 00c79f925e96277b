"""The plan that the pods were made with, kept on their Deployment.

A plan is made once for a spec and then kept, whatever happens to nodes and neighbours: new numbers would restart engines that
hold hundreds of GiB of warm cache. The Deployment carries it, so it survives the operator and needs no store of its own.
"""

import json
import logging

from hisparse_operator.api import HiSparseDeployment
from hisparse_operator.planning import Plan, plan_from_json, plan_to_json
from hisparse_operator.resources.names import PLAN_ANNOTATION
from hisparse_operator.resources.rendering import digest

logger = logging.getLogger(__name__)


def spec_hash(owner: HiSparseDeployment) -> str:
    """Hash of all that a plan depends on in the spec.

    Replicas are left out: scaling must not restart running pods. So are fields at their default: one that a newer operator
    adds must not drop the plans that are settled.
    """
    return digest(owner.spec.model_dump(mode="json", by_alias=True, exclude={"replicas"}, exclude_defaults=True))


def write(plan: Plan, *, owner: HiSparseDeployment) -> str:
    """The annotation's text."""
    return json.dumps({"specHash": spec_hash(owner), "plan": json.loads(plan_to_json(plan))}, sort_keys=True)


def read(text: str, *, owner: HiSparseDeployment) -> Plan | None:
    """The plan in the annotation, if it was made for the spec as it is now.

    A text that cannot be read (a person may have edited it) is no plan: the next one replaces it.
    """
    if not text:
        return None
    try:
        content = json.loads(text)
        return plan_from_json(json.dumps(content["plan"])) if content["specHash"] == spec_hash(owner) else None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("%s: annotation %s cannot be read, planning anew: %s", owner.key, PLAN_ANNOTATION, error)
        return None
