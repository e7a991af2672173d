"""A timeline as SVG: plain shapes and real text, with a title and a description for readers.

Written with the standard library; each shape has a tooltip.
"""

from xml.etree import ElementTree as ET

from anabranch.pictures.scene import PAPER, Box, Disc, Line, Scene, Shape, Words, scene
from anabranch.pictures.timeline import Timeline

FONTS = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif"


def draw_svg(seen: Timeline) -> str:
    """The text of an SVG file."""
    return write(scene(seen))


def write(drawn: Scene) -> str:
    """The same for shapes that are laid out already."""
    root = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {_number(drawn.width)} {_number(drawn.height)}",
            "width": _number(drawn.width),
            "height": _number(drawn.height),
            "role": "img",
            "aria-labelledby": "title words",
            "font-family": FONTS,
        },
    )
    ET.SubElement(root, "title", {"id": "title"}).text = _legal(drawn.title)
    ET.SubElement(root, "desc", {"id": "words"}).text = _legal(drawn.words)
    ET.SubElement(root, "rect", {"width": "100%", "height": "100%", "fill": PAPER})
    for shape in drawn.shapes:
        _add(root, shape)
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _legal(text: str) -> str:
    """The text without what XML forbids, and without marks that turn it around."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _add(root: ET.Element, shape: Shape) -> None:
    if isinstance(shape, Words):
        if shape.text:
            _add_words(root, shape)
        return
    if isinstance(shape, Box):
        places = {"x": shape.x, "y": shape.y, "width": shape.width, "height": shape.height}
        made = ET.SubElement(root, "rect", _numbers(places) | {"fill": shape.fill})
        if shape.radius:
            made.set("rx", _number(shape.radius))
        if shape.stroke:
            made.set("stroke", shape.stroke)
    elif isinstance(shape, Line):
        places = {"x1": shape.x1, "y1": shape.y1, "x2": shape.x2, "y2": shape.y2}
        made = ET.SubElement(root, "line", _numbers(places) | {"stroke": shape.stroke})
        made.set("stroke-width", _number(shape.width))
    else:
        places = {"cx": shape.x, "cy": shape.y, "r": shape.radius}
        made = ET.SubElement(root, "circle", _numbers(places) | {"fill": shape.fill})
    if not isinstance(shape, Disc) and shape.dashed:
        made.set("stroke-dasharray", "4 3")
    if not isinstance(shape, Line) and shape.tooltip:
        ET.SubElement(made, "title").text = _legal(shape.tooltip)


def _numbers(places: dict[str, float]) -> dict[str, str]:
    return {name: _number(value) for name, value in places.items()}


def _add_words(root: ET.Element, words: Words) -> None:
    made = ET.SubElement(root, "text", _numbers({"x": words.x, "y": words.y}))
    made.set("font-size", str(words.size))
    made.set("fill", words.fill)
    if words.bold:
        made.set("font-weight", "bold")
    if words.anchor != "start":
        made.set("text-anchor", words.anchor)
    made.text = _legal(words.text)
