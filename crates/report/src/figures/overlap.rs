//! For tests: texts of a drawing that lie on marks or on other texts, or beyond its edges, by their boxes in DejaVu Sans.

use roxmltree::{Document, Node};

use crate::svg::{SIZE, SMALL, Svg, text_width};

/// Left, upper, right and lower end.
type Span = [f64; 4];

/// Half the width of the strokes.
const STROKE: f64 = 0.8;

fn number(node: Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn overlap(a: Span, b: Span) -> bool {
    a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3]
}

fn contains(outer: Span, inner: Span) -> bool {
    outer[0] <= inner[0] && outer[1] <= inner[1] && outer[2] >= inner[2] && outer[3] >= inner[3]
}

/// Where a text lies: letters are at most so high above and below their line.
fn span_of_text(node: Node<'_, '_>) -> Span {
    let class = node.attribute("class").unwrap_or_default();
    let size = if class.split(' ').any(|class| class == "s") { SMALL } else { SIZE };
    let (up, down, width) = (0.76 * size, 0.21 * size, text_width(class, node.text().unwrap_or_default()));
    if let Some(moved) = node.attribute("transform") {
        let numbers: Vec<f64> = moved.split(['(', ' ', ')']).filter_map(|word| word.parse().ok()).collect();
        return [numbers[0] - up, numbers[1] - width / 2.0, numbers[0] + down, numbers[1] + width / 2.0];
    }
    let (x, y) = (number(node, "x"), number(node, "y"));
    let left = match node.attribute("text-anchor") {
        Some("middle") => x - width / 2.0,
        Some("end") => x - width,
        _ => x,
    };
    [left, y - up, left + width, y + down]
}

/// Straight lines of a mark.
fn segments(node: Node<'_, '_>) -> Vec<[f64; 4]> {
    if node.tag_name().name() == "line" {
        return vec![["x1", "y1", "x2", "y2"].map(|name| number(node, name))];
    }
    let numbers = |text: &str| text.split([' ', ',']).filter_map(|word| word.parse().ok()).collect::<Vec<f64>>();
    let points = node.attribute("points").map(numbers).unwrap_or_default();
    points.chunks(2).zip(points.chunks(2).skip(1)).map(|(a, b)| [a[0], a[1], b[0], b[1]]).collect()
}

/// Whether a line runs through a box: the part of it that is inside has a length.
fn crosses([x1, y1, x2, y2]: [f64; 4], [left, top, right, bottom]: Span) -> bool {
    let (mut from, mut to) = (0.0_f64, 1.0_f64);
    for (start, step, low, high) in [(x1, x2 - x1, left, right), (y1, y2 - y1, top, bottom)] {
        if step == 0.0 {
            if start < low || start > high {
                return false;
            }
            continue;
        }
        let (a, b) = ((low - start) / step, (high - start) / step);
        (from, to) = (from.max(a.min(b)), to.min(a.max(b)));
    }
    from < to
}

fn touches(mark: Node<'_, '_>, text: Span) -> bool {
    let wider = [text[0] - STROKE, text[1] - STROKE, text[2] + STROKE, text[3] + STROKE];
    match mark.tag_name().name() {
        "text" => overlap(span_of_text(mark), text),
        "circle" => {
            let (x, y, radius) = (number(mark, "cx"), number(mark, "cy"), number(mark, "r"));
            let (dx, dy) = (x - x.clamp(text[0], text[2]), y - y.clamp(text[1], text[3]));
            dx.hypot(dy) < radius
        }
        "rect" => overlap(span_of_rect(mark), text),
        _ => segments(mark).into_iter().any(|segment| crosses(segment, wider)),
    }
}

fn span_of_rect(node: Node<'_, '_>) -> Span {
    let (x, y) = (number(node, "x"), number(node, "y"));
    [x, y, x + number(node, "width"), y + number(node, "height")]
}

/// Every text that lies on a mark, on another text or beyond an edge. A filled box that holds a whole text hides what was drawn before.
pub(super) fn faults(svg: &Svg) -> Vec<String> {
    let drawing = svg.inline("");
    let document = Document::parse(&drawing).expect("a drawing");
    let drawn: Vec<Node<'_, '_>> = document.root_element().children().filter(Node::is_element).collect();
    let mut found = Vec::new();
    for (at, text) in drawn.iter().enumerate().filter(|(_, node)| node.has_tag_name("text")) {
        let (span, words) = (span_of_text(*text), text.text().unwrap_or_default());
        if !contains([-0.1, 0.0, svg.width + 0.1, svg.height], span) {
            found.push(format!("`{words}` leaves the drawing"));
        }
        let is_ground = |mark: &Node<'_, '_>| mark.has_tag_name("rect") && contains(span_of_rect(*mark), span);
        let ground = drawn[..at].iter().rposition(is_ground);
        let visible = drawn.iter().enumerate().skip(ground.map_or(0, |ground| ground + 1));
        for (_, mark) in visible.filter(|(other, _)| *other != at) {
            if touches(*mark, span) {
                found.push(format!("`{words}` lies on {}", &drawing[mark.range()]));
            }
        }
    }
    found
}

#[test]
fn a_line_through_a_text_is_found_and_one_under_a_ground_is_not() {
    use crate::svg::Anchor;
    let drawn = |line: [f64; 4], ground: bool| {
        let mut svg = Svg::new(200.0, 60.0);
        svg.line(line[0], line[1], line[2], line[3], "bar");
        if ground {
            svg.rect(20.0, 10.0, 100.0, 30.0, "box", "");
        }
        svg.text(30.0, 30.0, Anchor::Start, "s", "a name");
        faults(&svg).len()
    };
    assert_eq!([[0.0, 25.0, 200.0, 25.0], [40.0, 0.0, 40.0, 60.0]].map(|line| drawn(line, false)), [1, 1]);
    assert_eq!((drawn([0.0, 10.0, 200.0, 60.0], false), drawn([0.0, 25.0, 200.0, 25.0], true)), (1, 0));
    assert_eq!((drawn([0.0, 45.0, 200.0, 45.0], false), drawn([0.0, 59.0, 200.0, 40.0], false)), (0, 0));
    let mut svg = Svg::new(40.0, 60.0);
    svg.text(10.0, 30.0, Anchor::Start, "", "longer than that");
    assert_eq!(faults(&svg).len(), 1);
}
