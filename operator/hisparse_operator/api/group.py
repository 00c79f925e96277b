"""Names under which the Kubernetes API knows a HiSparseDeployment."""

GROUP = "hisparse.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "HiSparseDeployment"
PLURAL = "hisparsedeployments"
SINGULAR = "hisparsedeployment"
SHORT_NAME = "hsd"
CATEGORIES = ("hisparse",)
CRD_NAME = f"{PLURAL}.{GROUP}"

# The name becomes a Service name (a DNS-1035 label) and, with suffixes, names and label values of children: 63 at most.
NAME_MAX_CHARACTERS = 40
