"""README, site and gallery are executed, their links are followed, and docstrings are complete."""

import importlib
import re
import runpy
import sys
from contextlib import nullcontext
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import soubayes

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = [DOCS / name for name in ("_build", "auto_examples", "api/generated", "paper/generated")]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(p for p in sorted(DOCS.rglob("*.md")) if not any(made in p.parents for made in MADE)),
]
SCRIPTS = sorted((ROOT / "examples").rglob("*.py"))
CODE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
ROLE = re.compile(r"\{(?:class|func)\}`~?soubayes\.(\w+)`")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A directory of its own, and figures that are drawn but not shown."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    yield plt
    plt.close("all")


@pytest.fixture
def executed_pages(monkeypatch):
    """What the build of the site runs pages with."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("executed_pages")


def compiling(path: Path):
    """Programs that run for a moment are compiled faster; `make docs` compiles all of them fully.

    Fits of NumPyro models run longer than it takes to compile them.
    """
    text = path.read_text()
    if not re.search(r"SoUNet|sensitivity", text):
        return nullcontext()
    from compiling import compile_faster

    return compile_faster()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if CODE.search(page.read_text())], ids=name_of
)
def test_python_blocks_of_a_page_run_in_order(page, executed_pages, tmp_path):
    with compiling(page):
        text = executed_pages.with_outputs(page.read_text(), tmp_path, page.stem)
    assert len(CODE.findall(text)) == len(CODE.findall(page.read_text()))


def test_a_page_shows_what_its_blocks_print_and_draw(executed_pages, tmp_path):
    page = """# Title

```python
import matplotlib.pyplot as plt
x = 3
fig, ax = plt.subplots()
ax.set(xlabel="time", ylabel="$x$")
```

```python
print(x + 1)
```
"""
    plt.figure()  # left open by somebody else
    text = executed_pages.with_outputs(page, tmp_path, "page")
    assert text.count("![") == 1
    assert text.index("![ x  against time](/executed/page-1.png)") < text.index("print(x + 1)")
    assert text.endswith("```\n\n```text\n4\n```\n")
    assert (tmp_path / "page-1.png").stat().st_size > 1000


def test_a_page_that_warns_does_not_pass(executed_pages, tmp_path):
    page = '```python\nimport warnings\nwarnings.warn("old")\n```\n'
    with pytest.raises(UserWarning, match="old"):
        executed_pages.with_outputs(page, tmp_path, "page")


def test_output_in_the_readme_is_what_its_code_prints(executed_pages, tmp_path):
    shown = re.compile(r"^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
    text = (ROOT / "README.md").read_text()
    printed = shown.findall(executed_pages.with_outputs(shown.sub("```", text), tmp_path, "page"))
    assert shown.findall(text) == printed[:1]


@pytest.mark.parametrize("page", [*(DOCS / "guide").glob("*.md")], ids=name_of)
def test_output_of_the_guide_is_never_written_by_hand(page):
    assert not re.search(r"^```python\n(?:(?!^```).*\n)*^```\n\n```text", page.read_text(), re.M)


# those take a third of a minute and more; `make docs` and the nightly tests run them
LONG = {"hpv_modules", "eight_schools", "what_hangs_on", "gaussian_mixture"}
RUNS = [
    pytest.param(script, marks=pytest.mark.slow if script.stem in LONG else (), id=script.stem)
    for script in SCRIPTS
]


@pytest.mark.parametrize("script", RUNS)
def test_example_runs_and_draws_a_figure(script, scratch):
    with compiling(script):
        runpy.run_path(str(script), run_name="__main__")
    assert scratch.get_fignums()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_is_a_short_page_with_a_title(script):
    lines = script.read_text().splitlines()
    assert lines[0] == '"""'
    assert set(lines[2]) == {"="}
    assert len(lines[2]) == len(lines[1])
    assert len(lines) <= 70


def test_gallery_is_large_enough_and_its_names_differ():
    assert len(SCRIPTS) >= 16
    assert len({script.stem for script in SCRIPTS}) == len(SCRIPTS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_images_of_a_page_lead_somewhere(page):
    text = FENCED.sub("", page.read_text())
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not leads_somewhere(page, link)] == []
    assert set(ROLE.findall(text)) <= set(soubayes.__all__)


SITE = "https://soubayes.github.io/soubayes/"
REPOSITORY = re.compile(
    r"https://(?:raw\.githubusercontent|github)\.com/soubayes/soubayes/(?:blob/)?main/"
)


def test_frames_show_pages_that_the_build_writes():
    shown = {
        name for page in PAGES for name in re.findall(r"_static/(\w+\.html)", page.read_text())
    }
    written = re.findall(r'folder / "(\w+\.html)"\)?[,.]', (DOCS / "conf.py").read_text())
    assert shown == set(written)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_addresses_of_the_site_and_the_repository_lead_to_files(page):
    """The README is shown where relative links lead nowhere, such as on PyPI."""
    links = LINK.findall(FENCED.sub("", page.read_text()))
    if page.name == "README.md":
        assert all("://" in link for link in links)
    for link in links:
        if link.startswith(SITE):
            path, _, anchor = link.removeprefix(SITE).partition("#")
            assert leads_somewhere(DOCS / "index.md", f"{path.removesuffix('html')}md#{anchor}")
        elif REPOSITORY.match(link):
            assert (ROOT / REPOSITORY.sub("", link)).exists()


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether a relative link has a target: a file, a heading, or a page of the gallery."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if DOCS / "auto_examples" in target.parents:
        return gallery_source(target.relative_to(DOCS / "auto_examples")).exists()
    if DOCS / "paper" / "generated" in target.parents:
        return True  # written when the site is built
    return target.exists() and (not anchor or anchor in anchors(target))


def gallery_source(made: Path) -> Path:
    """The script behind a page or an image of the gallery."""
    if made.parts[-2] == "images":
        name = re.fullmatch(r"sphx_glr_(\w+)_\d{3}\.png", made.name)
        made = made.parent.parent / (name[1] if name else "no such image")
    return (ROOT / "examples" / made).with_suffix(".py")


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as on the site and on GitHub."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("folder", ["guide", "development"])
def test_every_page_of_a_folder_is_in_its_table_of_contents(folder):
    index = (DOCS / folder / "index.md").read_text()
    pages = {page.stem for page in (DOCS / folder).glob("*.md")} - {"index"}
    listed = {line.strip() for line in index.splitlines()}
    assert "*" in listed or pages <= listed
    if folder == "guide":  # and has a line that says what is on it
        assert pages <= set(re.findall(r"^\| \[[^]]+\]\((\w+)\.md\) \|", index, re.M))


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^   (\w+)$", (DOCS / "api" / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == soubayes.__all__


@pytest.fixture
def faults(monkeypatch):
    """The rules that the build of the site checks as well."""
    pytest.importorskip("numpydoc")
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delitem(sys.modules, "docstring_rules", raising=False)
    return importlib.import_module("docstring_rules").faults


def test_every_public_name_has_a_complete_docstring(faults):
    found = {name: list(faults(getattr(soubayes, name), name)) for name in soubayes.__all__}
    assert {name: told for name, told in found.items() if told} == {}


def test_incomplete_docstrings_are_found(faults):
    def bare(x: int) -> int:
        """Add one.

        Args:
            x: a number.
        """
        return x + 1

    told = " ".join(faults(bare, "bare"))
    for fault in ("not numpydoc", "Notes", "References", "Examples", "description: x", "Returns"):
        assert fault in told


def test_names_of_other_libraries_on_pages_have_an_address(monkeypatch):
    """intersphinx works without a network, from a list of ours."""
    monkeypatch.syspath_prepend(str(DOCS))
    known = {
        name for names in importlib.import_module("inventories").NAMES.values() for name in names
    }
    role = re.compile(r"\{(?:class|func)\}`~?((?:sklearn|numpy|pandas|matplotlib)\.[\w.]+)`")
    assert {name for page in PAGES for name in role.findall(page.read_text())} <= known
