"""`python3 -m tools.devcluster`."""

import sys

from tools.devcluster.cli import main

sys.exit(main(sys.argv[1:]))
