"""tests/ is on the import path, so tests/sparse would pass for the PyData package of that name."""

import sys

sys.modules.setdefault("sparse", None)  # type: ignore[arg-type]
