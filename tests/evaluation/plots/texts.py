"""What tests of drawings share."""

import xml.etree.ElementTree as ElementTree

HOSTILE = "</svg><script>x</script> & \"$\\frac{1}$ id='y' \x00 政策"


def texts(svg):
    """Every text of a drawing, in drawing order; fails where the drawing is not well-formed XML."""
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
