"""tests/ is on the import path, where tests/sparse would pass for the PyData package `sparse`."""

import sys

sys.modules.setdefault("sparse", None)  # type: ignore[arg-type]
