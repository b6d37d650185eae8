"""``python -m epitomic`` is the command line."""

import sys

from epitomic.cli import main

sys.exit(main())
