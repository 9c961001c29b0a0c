//! Figures as PDF: the drawings of [`svg`](crate::svg), for papers.
//!
//! Reads what that module writes and nothing else: shapes, texts, pictures, groups that are moved, and rules of single classes. Texts are in
//! DejaVu Sans, whose Latin letters are in the file (`pdf/fonts/`). Letters that the Latin encoding of PDF has not become question marks.
//! Equal figures give equal bytes.

mod style;
pub(crate) mod text;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use roxmltree::{Document, Node};

use style::{Look, Rules};

/// Points of a length of SVG: 72 to an inch, of which a pixel is the 96th part.
const POINTS_PER_PIXEL: f64 = 0.75;

/// Why a drawing is no PDF.
#[derive(Debug, thiserror::Error)]
pub enum PdfError {
    /// It is not what [`svg`](crate::svg) writes.
    #[error("the drawing cannot be read: {0}")]
    Drawing(String),
}

/// A drawing as it stands in a file of its own, as a PDF of one page of its size.
///
/// # Errors
/// A drawing that [`svg`](crate::svg) did not write.
pub fn from_svg(svg: &str) -> Result<Vec<u8>, PdfError> {
    let bad = |reason: &str| PdfError::Drawing(reason.to_owned());
    let document = Document::parse(svg).map_err(|error| bad(&error.to_string()))?;
    let root = document.root_element();
    let view: Vec<f64> =
        root.attribute("viewBox").unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
    let [_, _, view_width, view_height] = view[..] else { return Err(bad("it has no view box")) };
    let width = root.attribute("width").and_then(points).ok_or_else(|| bad("it has no width"))?;
    let scale = width / view_width;
    let height = view_height * scale;
    let sheet =
        root.children().find(|node| node.has_tag_name("style")).and_then(|node| node.text()).unwrap_or_default();
    let mut page =
        PdfPage { rules: Rules::of(sheet), content: String::new(), opacities: BTreeMap::new(), pictures: Vec::new() };
    let _ = writeln!(page.content, "{} 0 0 {} 0 {} cm", real(scale), real(-scale), real(height));
    page.children(root, &Look::default())?;
    let title =
        root.children().find(|node| node.has_tag_name("title")).and_then(|node| node.text()).unwrap_or_default();
    Ok(page.file(width, height, title))
}

/// A length of SVG in points.
pub(crate) fn points(length: &str) -> Option<f64> {
    let units =
        [("mm", 72.0 / 25.4), ("cm", 72.0 / 2.54), ("in", 72.0), ("px", POINTS_PER_PIXEL), ("", POINTS_PER_PIXEL)];
    let (number, unit) = units.into_iter().find_map(|(unit, points)| Some((length.strip_suffix(unit)?, points)))?;
    Some(number.parse::<f64>().ok()? * unit)
}

/// A number as PDF writes it: no exponent, four decimals at most.
fn real(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// The page while it is drawn.
struct PdfPage {
    rules: Rules,
    content: String,
    /// Opacities that occur, in ten thousandths: of areas, and of lines.
    opacities: BTreeMap<(u32, u32), usize>,
    pictures: Vec<Picture>,
}

/// Pixels with their opacities.
struct Picture {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
    alpha: Vec<u8>,
}

impl PdfPage {
    fn children(&mut self, parent: Node<'_, '_>, look: &Look) -> Result<(), PdfError> {
        parent.children().filter(Node::is_element).try_for_each(|node| self.node(node, look))
    }

    fn node(&mut self, node: Node<'_, '_>, inherited: &Look) -> Result<(), PdfError> {
        let look = self.rules.look(node, inherited);
        if !look.shown {
            return Ok(());
        }
        let n = |name: &str| node.attribute(name).and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0);
        match node.tag_name().name() {
            "g" => {
                let (x, y) = moved(node.attribute("transform").unwrap_or_default()).0;
                let _ = writeln!(self.content, "q 1 0 0 1 {} {} cm", real(x), real(y));
                self.children(node, &look)?;
                self.content.push_str("Q\n");
            }
            "rect" => {
                let [x, y, width, height] = ["x", "y", "width", "height"].map(n);
                let path = format!("{} {} {} {} re", real(x), real(y), real(width), real(height));
                self.paint(&look, &path);
            }
            "line" => {
                let [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map(|name| real(n(name)));
                self.paint(&Look { fill: None, ..look }, &format!("{x1} {y1} m {x2} {y2} l"));
            }
            "circle" => self.paint(&look, &circle(n("cx"), n("cy"), n("r"))),
            shape @ ("polyline" | "polygon") => {
                let mut path = String::new();
                let pairs = node.attribute("points").unwrap_or_default().split_whitespace();
                for (index, (x, y)) in pairs.filter_map(|pair| pair.split_once(',')).enumerate() {
                    let _ = write!(path, "{x} {y} {} ", if index == 0 { "m" } else { "l" });
                }
                if shape == "polygon" && !path.is_empty() {
                    path.push('h');
                }
                self.paint(&look, path.trim_end());
            }
            "text" => self.text(node, &look, (n("x"), n("y"))),
            "image" => self.picture(node, ["x", "y", "width", "height"].map(n))?,
            "style" | "title" => {}
            other => return Err(PdfError::Drawing(format!("it has a <{other}>"))),
        }
        Ok(())
    }

    /// Fills and strokes a path as the look says.
    fn paint(&mut self, look: &Look, path: &str) {
        let operator = match (look.fill, look.stroke) {
            _ if path.is_empty() => return,
            (Some(_), Some(_)) => "B",
            (Some(_), None) => "f",
            (None, Some(_)) => "S",
            (None, None) => return,
        };
        self.content.push_str("q ");
        self.set(look);
        let _ = writeln!(self.content, "{path} {operator} Q");
    }

    /// Sets colours, line and opacity.
    fn set(&mut self, look: &Look) {
        let [fill, stroke] = [look.fill, look.stroke]
            .map(|colour| colour.map(|rgb| rgb.map(|part| real(f64::from(part) / 255.0)).join(" ")));
        let mut set = String::new();
        if let Some(fill) = fill {
            let _ = write!(set, "{fill} rg ");
        }
        if let Some(stroke) = stroke {
            let _ = write!(set, "{stroke} RG {} w ", real(look.stroke_width));
            if !look.dashes.is_empty() {
                let dashes: Vec<String> = look.dashes.iter().map(|dash| real(*dash)).collect();
                let _ = write!(set, "[{}] 0 d ", dashes.join(" "));
            }
        }
        let whole = |part: f64| (part.clamp(0.0, 1.0) * 10_000.0).round() as u32;
        let opacity = (whole(look.opacity * look.fill_opacity), whole(look.opacity));
        if opacity != (10_000, 10_000) {
            let next = self.opacities.len();
            let _ = write!(set, "/G{} gs ", self.opacities.entry(opacity).or_insert(next));
        }
        self.content.push_str(&set);
    }

    fn text(&mut self, node: Node<'_, '_>, look: &Look, (x, y): (f64, f64)) {
        let text = node.text().unwrap_or_default();
        let width = text::width(text, look.bold) * look.font_size;
        let back = match node.attribute("text-anchor") {
            Some("middle") => width / 2.0,
            Some("end") => width,
            _ => 0.0,
        };
        self.content.push_str("q ");
        self.set(&Look { stroke: None, ..look.clone() });
        let (font, size, shown) = (if look.bold { "B" } else { "R" }, real(look.font_size), text::literal(text));
        // Letters stand upright in a space whose y axis points down.
        let matrix = match node.attribute("transform").map(moved) {
            Some(((x, y), true)) => format!("0 -1 -1 0 {} {}", real(x), real(y + back)),
            Some(((x, y), false)) => format!("1 0 0 -1 {} {}", real(x - back), real(y)),
            None => format!("1 0 0 -1 {} {}", real(x - back), real(y)),
        };
        let _ = writeln!(self.content, "BT /F{font} {size} Tf {matrix} Tm {shown} Tj ET Q");
    }

    fn picture(&mut self, node: Node<'_, '_>, [x, y, width, height]: [f64; 4]) -> Result<(), PdfError> {
        let data = node.attribute("href").and_then(|href| href.strip_prefix("data:image/png;base64,"));
        let picture = data.and_then(from_base64).and_then(|png| Picture::of_png(&png));
        self.pictures.push(picture.ok_or_else(|| PdfError::Drawing("a picture in it cannot be read".into()))?);
        let (number, bottom) = (self.pictures.len() - 1, y + height);
        let [width, up, x, bottom] = [width, -height, x, bottom].map(real);
        let _ = writeln!(self.content, "q {width} 0 0 {up} {x} {bottom} cm /I{number} Do Q");
        Ok(())
    }

    /// The file: objects, their table, and where that is (ISO 32000-1).
    fn file(&self, width: f64, height: f64, title: &str) -> Vec<u8> {
        // Catalogue, list of pages, page, content, two fonts, information, of each font its measures and its letters; then two objects
        // for each picture.
        const FIRST_PICTURE: usize = 12;
        let mut resources = String::from("/Font << /FR 5 0 R /FB 6 0 R >>");
        let pictures = (0..self.pictures.len()).map(|number| format!("/I{number} {} 0 R", FIRST_PICTURE + 2 * number));
        let _ = write!(resources, " /XObject << {} >>", pictures.collect::<Vec<_>>().join(" "));
        let states = self.opacities.iter().map(|((area, line), number)| {
            format!("/G{number} << /ca {} /CA {} >>", real(f64::from(*area) / 1e4), real(f64::from(*line) / 1e4))
        });
        let _ = write!(resources, " /ExtGState << {} >>", states.collect::<Vec<_>>().join(" "));
        let mut objects = vec![
            b"<< /Type /Catalog /Pages 2 0 R >>".to_vec(),
            b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_vec(),
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {} {}] /Contents 4 0 R /Resources << {resources} >> >>",
                real(width),
                real(height)
            )
            .into_bytes(),
            stream("", self.content.as_bytes()),
            text::REGULAR.font(8).into_bytes(),
            text::BOLD.font(9).into_bytes(),
            format!("<< /Title {} /Producer (warmcore) >>", text::literal(title)).into_bytes(),
            text::REGULAR.descriptor(10).into_bytes(),
            text::BOLD.descriptor(11).into_bytes(),
        ];
        for font in [&text::REGULAR, &text::BOLD] {
            objects.push(stream(&format!("/Length1 {}", font.letters.len()), font.letters));
        }
        for (number, picture) in self.pictures.iter().enumerate() {
            let size = format!(
                "/Type /XObject /Subtype /Image /Width {} /Height {} /BitsPerComponent 8 /Interpolate false",
                picture.width, picture.height
            );
            let mask = FIRST_PICTURE + 2 * number + 1;
            objects.push(stream(&format!("{size} /ColorSpace /DeviceRGB /SMask {mask} 0 R"), &picture.rgb));
            objects.push(stream(&format!("{size} /ColorSpace /DeviceGray"), &picture.alpha));
        }
        let mut file = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n".to_vec();
        let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
        for (number, object) in (1..).zip(&objects) {
            let _ = writeln!(table, "{:010} 00000 n ", file.len());
            file.extend(format!("{number} 0 obj\n").bytes());
            file.extend(object);
            file.extend(b"\nendobj\n");
        }
        let start = file.len();
        let trailer =
            format!("trailer\n<< /Size {} /Root 1 0 R /Info 7 0 R >>\nstartxref\n{start}\n%%EOF\n", objects.len() + 1);
        file.extend(table.bytes().chain(trailer.bytes()));
        file
    }
}

/// An object with compressed data; `entries` of its dictionary besides length and filter.
fn stream(entries: &str, data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    // Writing to memory cannot fail.
    let _ = encoder.write_all(data);
    let packed = encoder.finish().unwrap_or_default();
    let mut object = format!("<< {entries} /Filter /FlateDecode /Length {} >>\nstream\n", packed.len()).into_bytes();
    object.extend(packed);
    object.extend(b"\nendstream");
    object
}

/// Where `translate(X Y)` leads, and whether a quarter turn to the left follows.
fn moved(transform: &str) -> ((f64, f64), bool) {
    let inner = transform.strip_prefix("translate(").and_then(|rest| rest.split_once(')'));
    let mut numbers = inner.map_or("", |(inner, _)| inner).split([' ', ',']).filter_map(|number| number.parse().ok());
    let mut next = || numbers.next().unwrap_or(0.0);
    ((next(), next()), transform.contains("rotate(-90)"))
}

/// A circle of four curves.
fn circle(x: f64, y: f64, r: f64) -> String {
    /// Control points of a quarter of the unit circle, as cubic curves come closest to it.
    const CONTROL: f64 = 0.5523;
    let c = r * CONTROL;
    let p = |dx: f64, dy: f64| format!("{} {}", real(x + dx), real(y + dy));
    format!(
        "{} m {} {} {} c {} {} {} c {} {} {} c {} {} {} c h",
        p(r, 0.0),
        p(r, c),
        p(c, r),
        p(0.0, r),
        p(-c, r),
        p(-r, c),
        p(-r, 0.0),
        p(-r, -c),
        p(-c, -r),
        p(0.0, -r),
        p(c, -r),
        p(r, -c),
        p(r, 0.0)
    )
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.trim_end_matches('=').bytes().map(digit).collect::<Option<_>>()?;
    let bytes = digits.chunks(4).flat_map(|chunk| {
        let word = chunk.iter().enumerate().fold(0_u32, |word, (at, digit)| word | u32::from(*digit) << (18 - 6 * at));
        word.to_be_bytes()[1..chunk.len()].to_vec()
    });
    Some(bytes.collect())
}

impl Picture {
    /// Of a PNG as [`Pixels`](crate::pack::Pixels) writes it: one block of data, RGBA, no filter.
    fn of_png(png: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u32::from_be_bytes(png.get(at..at + 4)?.try_into().ok()?));
        let (width, height, length) = (number(16)?, number(20)?, number(33)? as usize);
        let mut raw = Vec::new();
        ZlibDecoder::new(png.get(41..41 + length)?).read_to_end(&mut raw).ok()?;
        let row = 4 * width as usize + 1;
        if raw.len() != row * height as usize || raw.iter().step_by(row).any(|filter| *filter != 0) {
            return None;
        }
        let pixels = || raw.chunks(row).flat_map(|row| row[1..].chunks(4));
        Some(Self {
            width,
            height,
            rgb: pixels().flat_map(|pixel| pixel[..3].to_vec()).collect(),
            alpha: pixels().map(|pixel| pixel[3]).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::{Pixels, base64};
    use crate::svg::{Anchor, Svg};

    fn drawing() -> String {
        let mut svg = Svg::new(200.0, 100.0);
        svg.rect(10.0, 10.0, 50.0, 20.0, "c0", "hover");
        svg.line(0.0, 0.0, 200.0, 0.0, "one");
        svg.circle(20.0, 50.0, 4.0, "dot c1", "");
        svg.text(100.0, 50.0, Anchor::Middle, "m", "100 µs (±5 %)");
        svg.text_upwards(8.0, 50.0, "s", "tasks");
        svg.magnitudes([100.0, 60.0, 50.0, 20.0], (2, 1), |column, _| Some(column as f64));
        svg.standalone_of_width("A title", Some("85mm"))
    }

    /// The content of the page, unpacked.
    fn content(pdf: &[u8]) -> String {
        let find = |from: usize, what: &[u8]| from + pdf[from..].windows(what.len()).position(|w| w == what).unwrap();
        let start = find(0, b"/FlateDecode");
        let (start, end) = (find(start, b"stream\n") + 7, find(start, b"\nendstream"));
        let mut text = String::new();
        ZlibDecoder::new(&pdf[start..end]).read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_page_has_the_width_that_was_asked_for_and_the_drawings_proportions() {
        let pdf = from_svg(&drawing()).unwrap();
        let text = String::from_utf8_lossy(&pdf).into_owned();
        // 85 mm are 240.9449 points; the drawing is 200 by 100.
        assert!(text.contains("/MediaBox [0 0 240.9449 120.4724]"), "{text}");
        assert!(text.starts_with("%PDF-1.4") && text.ends_with("%%EOF\n") && text.contains("/Title (A title)"));
        assert_eq!(pdf, from_svg(&drawing()).unwrap(), "equal figures, equal bytes");
    }

    #[test]
    fn every_object_is_where_the_table_says() {
        let pdf = from_svg(&drawing()).unwrap();
        let text = String::from_utf8_lossy(&pdf).into_owned();
        let start: usize = text.rsplit("startxref\n").next().unwrap().lines().next().unwrap().parse().unwrap();
        // Two for the picture of light ground and two for that of dark ground would be fifteen: the latter is not drawn.
        assert!(pdf[start..].starts_with(b"xref\n0 14\n"), "eleven objects, and two for the picture");
        let table = String::from_utf8(pdf[start..].to_vec()).unwrap();
        for (number, line) in (1..).zip(table.lines().skip(3).take(13)) {
            let at: usize = line[..10].parse().unwrap();
            assert!(pdf[at..].starts_with(format!("{number} 0 obj\n").as_bytes()), "{number}");
        }
    }

    #[test]
    fn shapes_texts_and_pictures_are_drawn_as_the_style_says_and_dark_ones_are_not() {
        let page = content(&from_svg(&drawing()).unwrap());
        assert!(page.contains("10 10 50 20 re f Q"), "{page}");
        assert!(page.contains("[4 3] 0 d 0 0 m 200 0 l S Q"), "{page}");
        assert!(page.contains("(100 \\265s \\(\\2615 %\\)) Tj"), "{page}");
        assert!(page.contains("0 -1 -1 0 8 "), "the text that reads upwards: {page}");
        assert_eq!(page.matches(" Do Q").count(), 1, "the picture for light ground alone");
        assert!(
            from_svg("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1 1\" width=\"1\"><video/></svg>")
                .is_err()
        );
    }

    #[test]
    fn the_letters_of_both_fonts_are_in_the_file() {
        let pdf = from_svg(&drawing()).unwrap();
        let text = String::from_utf8_lossy(&pdf).into_owned();
        for name in ["WARMCO+DejaVuSans", "WARMCO+DejaVuSans-Bold"] {
            assert!(text.contains(&format!("/BaseFont /{name} ")) && text.contains(&format!("/FontName /{name} ")));
        }
        assert_eq!(text.matches("/FontFile2 ").count(), 2);
    }

    #[test]
    fn pixels_survive() {
        let mut pixels = Pixels::new(2, 2);
        pixels.set(0, 0, [1, 2, 3]);
        pixels.set_with_alpha(1, 1, [9, 8, 7], 0.5);
        let png = from_base64(&base64(&pixels.png())).unwrap();
        assert_eq!(png, pixels.png());
        let picture = Picture::of_png(&png).unwrap();
        assert_eq!((picture.width, picture.height, &picture.alpha[..]), (2, 2, &[255, 0, 0, 128][..]));
        assert_eq!((&picture.rgb[..3], &picture.rgb[9..]), (&[1, 2, 3][..], &[9, 8, 7][..]));
    }
}
