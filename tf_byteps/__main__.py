"""`python -m tf_byteps` is the `bps` command."""

import sys

from tf_byteps.cli import main

sys.exit(main())
