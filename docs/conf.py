"""How the documentation is built. The API reference is written from the floors' modules each time."""

import os
import pkgutil
import re
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path
from types import FunctionType
from typing import Any, get_type_hints

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
from generated import filled, with_results

project = "meshwright"
author = "the meshwright authors"
copyright = "the meshwright authors"
version = release = version_of("meshwright")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
if os.environ.get("MESHWRIGHT_DOCS") != "check":
    extensions.append("sphinx.ext.viewcode")  # pages of sources: more than half of the time, and nothing that could be wrong
exclude_patterns = ["_build"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"meshwright {version}"
html_static_path = ["_static"]
html_css_files = ["page.css"]

default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# What a module hands on by `__all__` is documented where it is defined.
autodoc_default_options = {"members": True, "exclude-members": "model_config", "ignore-module-all": True}
napoleon_use_ivar = True
napoleon_custom_sections = ["Source"]

FLOORS = ["jobs", "clusters", "plans", "costs", "simulation", "planners", "planning", "worlds", "envs", "models", "profiling"]
FLOORS += ["training", "evaluation", "export"]
FOUNDATION = ["devices", "packaged", "settings", "yaml12", "files", "inputs", "temporaries", "worker_pool", "errors"]


FIELDS = re.compile(r":(ivar|param) (\w+(?:, \w+)+):")


def setup(app: Sphinx) -> None:
    """Mend what autodoc and napoleon make of docstrings and annotations; fields of sections exist by priority 900."""
    app.connect("autodoc-process-docstring", part_fields, priority=900)
    app.connect("autodoc-before-process-signature", resolve_annotations)
    app.connect("source-read", fill_tables)
    app.connect("html-page-context", lighten_sidebar, priority=400)  # the theme asks for its sidebar at 500


def fill_tables(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the tables into a page that are made of the program itself."""
    source[0] = with_results(source[0]) if page == "results" else filled(source[0])


def part_fields(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Give each name of ``a, b: text`` a field of its own; Sphinx would read ``a,`` as the type of ``b``."""
    parted: list[str] = []
    start = 0
    while start < len(lines):
        end = start + 1
        while end < len(lines) and lines[end].startswith(" "):
            end += 1
        match = FIELDS.match(lines[start])
        for field in match[2].split(", ") if match else [""]:
            first = f":{match[1]} {field}:{lines[start][match.end() :]}" if match else lines[start]
            parted += [first, *lines[start + 1 : end]]
        start = end
    lines[:] = parted


def resolve_annotations(app: Sphinx, obj: object, bound_method: bool) -> None:
    """Make types of the texts that annotations are; of a class's ``__init__`` autodoc would take the bare names."""
    if isinstance(obj, FunctionType):
        with suppress(NameError):  # imported for type checking only
            obj.__annotations__ = get_type_hints(obj, include_extras=True)


def lighten_sidebar(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: object) -> None:
    """Make the sidebar, which is titles of pages, from the titles alone.

    Sphinx copies the whole contents of each page, every function of the reference among them, for the sidebar of each page, and
    throws all but the titles away: nine tenths of the time of a build.
    """
    env, whole = app.env, context.get("toctree")
    if whole is None:
        return
    if not TITLES:
        TITLES.update({name: titles(contents) for name, contents in env.tocs.items()})

    def toctree(**options: Any) -> str:
        contents = env.tocs
        env.tocs = TITLES if options.get("titles_only") else contents
        try:
            return whole(**options)
        finally:
            env.tocs = contents

    context["toctree"] = toctree


TITLES: dict[str, nodes.bullet_list] = {}
"""Contents of each page without its sections."""


def titles(contents: nodes.bullet_list) -> nodes.bullet_list:
    """Return the title of a page, and the pages below it."""
    copied = contents.deepcopy()
    for item in copied.children:
        if len(item) > 1:
            below = list(item.findall(addnodes.toctree))
            item[1:] = [nodes.bullet_list("", *below)] if below else []
    return copied


def write_reference(folder: Path) -> None:
    """Write one page for each floor, with its modules, and one for the foundation."""
    folder.mkdir(exist_ok=True)
    target = {f"{floor}.md": page(floor, modules_of(f"meshwright.{floor}")) for floor in FLOORS}
    target["foundation.md"] = page("foundation", [f"meshwright.{name}" for name in FOUNDATION])
    for old in folder.glob("*.md"):
        if old.name not in target:
            old.unlink()
    for name, text in target.items():
        if not (folder / name).exists() or (folder / name).read_text() != text:
            (folder / name).write_text(text)


def modules_of(floor: str) -> list[str]:
    """Return the public modules of a floor, by name."""
    result = pkgutil.walk_packages(import_module(floor).__path__, f"{floor}.")
    public = (module.name for module in result if not module.name.rpartition(".")[2].startswith("_"))
    return sorted(public)


def page(title: str, modules: list[str]) -> str:
    """Return the Markdown of one floor."""
    text = f"# {title}\n\n"
    if title in FLOORS:
        text += f"```{{eval-rst}}\n.. automodule:: meshwright.{title}\n   :no-members:\n```\n\n"
    for module in modules:
        text += f"## {module.removeprefix('meshwright.')}\n\n```{{eval-rst}}\n.. automodule:: {module}\n```\n\n"
    return text


write_reference(Path(__file__).parent / "api")
