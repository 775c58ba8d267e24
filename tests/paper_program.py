"""``python -m paper`` in this process."""

from typer.testing import CliRunner

from paper.commands import paper_app


def paper(*words):
    return CliRunner().invoke(paper_app, [str(word) for word in words])
