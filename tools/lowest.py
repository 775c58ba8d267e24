"""Print the lowest versions of our libraries that pyproject.toml allows, as constraints for pip."""

import re
import tomllib
from pathlib import Path

TOOLS = ("dev", "docs", "bench")  # extras that bring no library of ours
project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
lists = [project["dependencies"], *(extras[name] for name in extras if name not in TOOLS)]
for wanted in sorted({line for lines in lists for line in lines}):
    found = re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)$", wanted)
    if found:
        print(f"{found[1]}=={found[2]}")
