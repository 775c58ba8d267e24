"""Lines of code below a directory, without docstrings, comments and blank lines.

python tools/code_lines.py src/soubayes
"""

import ast
import sys
import tokenize
from collections import Counter
from pathlib import Path

_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(path: Path) -> int:
    """Of one file."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            documented |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in _SILENT:
                lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def counted(folder: Path) -> Counter[str]:
    """The total, and every package and module right below the folder."""
    lines: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        own = code_lines(path)
        lines["total"] += own
        lines[path.relative_to(folder).parts[0]] += own
    return lines


if __name__ == "__main__":
    for name, count in counted(Path(sys.argv[1])).most_common():
        print(f"{count:7,} {name}")
