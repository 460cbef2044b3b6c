"""`python -m worker` is `amf-worker`."""

import sys

from worker.cli import main

sys.exit(main())
