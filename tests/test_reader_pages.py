"""The pages for one reader each: their commands are known, and print what the pages show."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("platform_engineer", "learning_researcher", "scheduling_researcher")
CANNOT_RUN = ("my_agent:Agent", "train_own.py")
"""Files that a reader has to write first; tests/test_house.py runs them."""


def steps(page):
    """Commands of a page with the lines that it shows below each."""
    result = []
    for block in re.findall(r"^```console\n(.*?)^```", (DOCS / f"{page}.md").read_text(), re.S | re.M):
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, *lines = part.splitlines()
            if not any(word in command for word in CANNOT_RUN):
                result.append((command, lines))
    return result


@pytest.mark.parametrize("page", PAGES)
def test_every_option_of_a_command_is_known(page):
    from typer.main import get_command

    from meshwright.cli.app import app

    program = get_command(app)
    for command, _ in steps(page):
        words = command.split()
        if words[0] != "meshwright":
            continue
        named = program
        while words[1] in getattr(named, "commands", {}):
            named = named.commands[words.pop(1)]
        assert named is not program, command
        known = {option for parameter in named.params for option in parameter.opts}
        assert set(re.findall(r" (--[a-z-]+)", command)) <= known, command


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page, tmp_path):
    for code in re.findall(r"^```python\n(class .*?)^```", (DOCS / f"{page}.md").read_text(), re.S | re.M):
        (tmp_path / "my_rules.py").write_text(code)
    bin_folder = str(Path(sys.executable).parent)
    for command, lines in steps(page):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(Path.home())},
            timeout=1500,
        )
        assert done.returncode == 0, done.stderr
        printed = iter([line.rstrip() for line in done.stdout.splitlines()])
        for line in lines:
            expected = line.rstrip()
            assert line == "..." or any(_is_alike(expected, one) for one in printed), (
                command,
                line,
                done.stdout,
            )  # in this order


def _is_alike(expected, printed):
    """Whether a line is the page's.

    Processors sum in other orders. For a trained network, words are equal and figures within a tenth; of equally good
    validations another one may come first. The time of a decision, last in rows with intervals, is the machine's."""
    if "[" in expected:
        expected, printed = (re.sub(r"(?<=\d) +\d+\.\d\d$", "", line) for line in (expected, printed))
    if not expected.startswith(("  first ", "first ", "  validation ")):
        return expected == printed
    expected, printed = (re.sub(r"at [\d,]+ decisions", "", line) for line in (expected, printed))
    figure = r"[-+]?\d+(?:\.\d+)?"
    if re.sub(figure, "N", expected).split() != re.sub(figure, "N", printed).split():
        return False
    pairs = zip(re.findall(figure, expected), re.findall(figure, printed), strict=True)
    return all(math.isclose(float(page), float(here), rel_tol=0.1) for page, here in pairs)


def test_every_reader_is_led_to_his_page():
    index, readme = (DOCS / "index.md").read_text(), (DOCS.parent / "README.md").read_text()
    for page in PAGES:
        assert page in index
        assert f"docs/{page}.md" in readme


def test_a_rule_on_a_page_is_a_policy():
    from meshwright.planners.policy import Policy

    (code,) = re.findall(r"^```python\n(class .*?)^```", (DOCS / "scheduling_researcher.md").read_text(), re.S | re.M)
    names = {}
    exec(code, names)
    made = names["Patient"](None)
    assert {name for name in vars(Policy) if not name.startswith("_")} <= set(dir(made))
