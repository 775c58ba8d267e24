"""``soubayes`` and ``python -m soubayes``: the command line, or how to install it."""

import sys

from soubayes._optional import explain_missing_extra


def main() -> None:
    """Run the command line."""
    try:
        with explain_missing_extra("the soubayes command"):
            from soubayes.cli import app
    except ImportError as error:
        sys.exit(f"soubayes: {error}")
    app(prog_name="soubayes")


if __name__ == "__main__":
    main()
