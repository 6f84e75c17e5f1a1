"""`python -m emceepee.cli`."""

import sys

from emceepee.cli.main import main

sys.exit(main())
