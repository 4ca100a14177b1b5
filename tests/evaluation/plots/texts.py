"""Shared by the tests of figures."""

import xml.etree.ElementTree as ElementTree
from html import unescape

HOSTILE = "</svg><script>x</script> & \"$\\frac{1}$ id='y' \x00 政策"


def texts(svg):
    """Every text of a drawing, in drawing order; fails where the drawing is not well-formed XML."""
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def words(figure):
    """Every text of a figure as a reader sees it: names, titles, ticks and what is written into it."""
    result = []

    def collect(value):
        if isinstance(value, str):
            result.append(unescape(value.replace("<b>", "").replace("</b>", "").replace("<br>", " ")))
        elif isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                collect(one)

    collect(figure)
    return result


def traces(figure, name):
    """The traces of a name."""
    return [trace for trace in figure["data"] if unescape(trace["name"]) == name]
