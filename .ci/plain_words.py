"""Checks that pages, docstrings and texts use plain words, and that pages and docstrings have short sentences.

Words: those of `AVOIDED`, and "What" at the begin of a sentence, except in code between backticks. Sentences: at most `MOST`.
Looks at the files named as arguments, or else at every page and Python file that git tracks. Prints one line per fault and exits
with 1 where there is one.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

AVOIDED = re.compile(r"\b(?i:told|tells?|stands?(?!-in)|beside|goes on|alike(?!-)|of which)\b|(?:^|[.!?] )What ", re.M)
MOST = 25
SKIPPED = (".ci/plain_words.py", "tests/test_docs.py")
"""Files that hold these words to look for them."""
KEPT = ("is told",)
"""Texts that files name things by: a column by whose name saved policies know their features."""
_END = r"(?<=[.!?])\s+|(?<=[.!?]\*\*)\s+|(?:^|\n) *(?:-|\d+\.) "


def page_prose(text: str) -> tuple[str, list[str]]:
    """Return the text of a Markdown page without code, and its paragraphs without tables and headings."""
    text = re.sub(r"^    .*$", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.M)
    text = re.sub(r"`[^`]*`", "x", text)
    return text, [block for block in re.split(r"\n\s*\n", text) if block.lstrip()[:1] not in "|#:{"]


def docstring_prose(text: str) -> tuple[str, list[str]]:
    """Return the text of a docstring without code and examples, and its paragraphs and the entries of its sections."""
    text = re.sub(r"^\s*(>>>|\.\.\.) .*$", "", re.sub(r"``[^`]*``|`[^`]*`", "x", text), flags=re.M)
    blocks = [block for block in re.split(r"\n\s*\n", text) if "===" not in block]
    text = re.sub(r"^\s+[\w*, ]{1,60}: ", "", text, flags=re.M)  # names of arguments and keys
    return text, [part for block in blocks for part in re.split(r"\n(?=\s*[\w*, ]{1,60}: )", block)]


def texts(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Yield the docstrings and texts of a module: line, text, and whether it is a docstring (also of attributes)."""
    known = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            known.add(id(node.value))
            yield node.lineno, node.value.value, True
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in known
            and node.value not in KEPT
        ):
            yield node.lineno, node.value, False


def faults(path: Path) -> list[str]:
    """Return the faults in the words of a file."""
    if path.suffix == ".md":
        parts = [(0, *page_prose(path.read_text()))]
    else:
        parts = [
            (line, *(docstring_prose(text) if is_docstring else (re.sub(r"`[^`]*`", "x", text), [])))
            for line, text, is_docstring in texts(ast.parse(path.read_text()))
        ]
    result = []
    for line, text, blocks in parts:
        where = f"{path}:{line}" if line else str(path)
        result += [
            f"{where}: {match[0].strip()!r} in {text[max(0, match.start() - 30) : match.end() + 30]!r}"
            for match in AVOIDED.finditer(text)
        ]
        sentences = (sentence.split() for block in blocks for sentence in re.split(_END, block))
        result += [f"{where}: {len(words)} words: {' '.join(words[:8])} ..." for words in sentences if len(words) > MOST]
    return result


def tracked() -> list[str]:
    """Return the pages and Python files that git tracks."""
    words = ["git", "ls-files", "-z", "README.md", "CONTRIBUTING.md", "docs/*.md", "*.py"]
    return [name for name in subprocess.check_output(words, text=True).split("\0") if name and name not in SKIPPED]  # noqa: S603 - fixed arguments


def main(names: list[str]) -> int:
    """Check the named files, or all tracked ones; 1 where there is a fault, else 0."""
    results = [fault for name in names or tracked() for fault in faults(Path(name))]
    sys.stderr.writelines(f"{fault}\n" for fault in results)
    return min(len(results), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
