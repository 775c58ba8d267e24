"""``python -m paper``: every table and figure of the paper, from a clone."""

import sys

from soubayes._optional import explain_missing_extra


def main() -> None:
    """Run the command line."""
    try:
        with explain_missing_extra("python -m paper"):
            from paper.commands import paper_app
    except ImportError as error:
        sys.exit(f"paper: {error}")
    paper_app(prog_name="python -m paper")


if __name__ == "__main__":
    main()
