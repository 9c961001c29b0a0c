//! A small SVG writer: what the figures need and nothing else.
//!
//! Every text goes through [`escape`], so nothing that comes from a workload or a trace can become markup. Colours and
//! fonts are classes: a file of its own carries `STANDALONE_STYLE`, a figure in a page follows the page's light or dark
//! theme.

use std::fmt::{Display, Write as _};

use crate::colour::{Ground, magnitude};
use crate::figures::PANEL;
use crate::pack::Pixels;

/// Text as it may stand in XML and HTML, in content and in quoted attributes. Control characters that XML forbids
/// become U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Size of most texts, of those of class `s`, and of headings, class `h`, which are bold.
pub(crate) const SIZE: f64 = 12.0;
pub(crate) const SMALL: f64 = 10.5;
const HEADING: f64 = 15.0;

/// Length of a curve in a key: each kind of dashes is there at least once.
pub(crate) const CURVE_KEY: f64 = 26.0;

/// A coordinate: one decimal is finer than any screen.
pub(crate) fn coordinate(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// How wide a text is in DejaVu Sans, the widest of the fonts that the styles name and the one that PDFs embed.
pub(crate) fn text_width(class: &str, text: &str) -> f64 {
    let has = |wanted: &str| class.split(' ').any(|class| class == wanted);
    let size = match (has("s"), has("h")) {
        (true, _) => SMALL,
        (false, true) => HEADING,
        (false, false) => SIZE,
    };
    crate::pdf::text::width(text, has("b") || has("h")) * size
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Svg {
    /// Width in user units.
    pub width: f64,
    /// Height in user units.
    pub height: f64,
    /// Height of the part that pages show, if that is not all.
    page_height: Option<f64>,
    body: String,
}

impl Svg {
    /// An empty drawing.
    pub fn new(width: f64, height: f64) -> Self {
        Self { width, height, page_height: None, body: String::new() }
    }

    /// A line of text; `class` may be empty. One with its middle at the point moves aside as far as it must to lie within the drawing.
    pub fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let half = text_width(class, text) / 2.0;
        let x = if anchor == Anchor::Middle && 2.0 * half <= self.width { x.clamp(half, self.width - half) } else { x };
        let (x, y, anchor) = (coordinate(x), coordinate(y), anchor.name());
        let text = escape(text);
        let _ = writeln!(self.body, r#"<text x="{x}" y="{y}" text-anchor="{anchor}" class="t {class}">{text}</text>"#);
    }

    /// A line of text that reads upwards, centred on its point.
    pub(crate) fn text_upwards(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (coordinate(x), coordinate(y), escape(text));
        let _ = writeln!(
            self.body,
            r#"<text transform="translate({x} {y}) rotate(-90)" text-anchor="middle" class="t {class}">{text}</text>"#
        );
    }

    /// A straight line.
    pub fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, class: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(coordinate);
        let _ = writeln!(self.body, r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#);
    }

    /// In a key, what a curve of a series looks like, with its dashes: a piece of it in the middle of a line of small text at `y`.
    pub(crate) fn curve_key(&mut self, x: f64, y: f64, series: usize) {
        self.line(x, y - 3.5, x + CURVE_KEY, y - 3.5, &format!("sample k k{series}"));
    }

    /// A rectangle with a text that shows on hover, unless that is empty.
    pub(crate) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, hover: &str) {
        self.rect_with(x, y, width, height, &format!(r#"class="{class}""#), hover);
    }

    /// A rectangle with attributes of the caller's, which must be escaped already.
    pub(crate) fn rect_with(&mut self, x: f64, y: f64, width: f64, height: f64, attributes: &str, hover: &str) {
        let [x, y, width, height] = [x, y, width.max(0.0), height.max(0.0)].map(coordinate);
        let _ = write!(self.body, r#"<rect x="{x}" y="{y}" width="{width}" height="{height}" {attributes}"#);
        self.close("rect", hover);
    }

    /// A circle with a text that shows on hover, unless that is empty.
    pub fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str, hover: &str) {
        let [x, y, radius] = [x, y, radius].map(coordinate);
        let _ = write!(self.body, r#"<circle cx="{x}" cy="{y}" r="{radius}" class="{class}""#);
        self.close("circle", hover);
    }

    /// Connected points.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], class: &str, hover: &str) {
        self.polyline_with(points, &format!(r#"class="{class}""#), hover);
    }

    /// Connected points with attributes of the caller's, which must be escaped already.
    pub(crate) fn polyline_with(&mut self, points: &[(f64, f64)], attributes: &str, hover: &str) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{},{} ", coordinate(*x), coordinate(*y));
        }
        let _ = write!(self.body, r#"<polyline points="{}" {attributes}"#, text.trim_end());
        self.close("polyline", hover);
    }

    /// A closed area.
    pub(crate) fn polygon(&mut self, points: &[(f64, f64)], class: &str, hover: &str) {
        let mut text = String::new();
        for (x, y) in points {
            let _ = write!(text, "{},{} ", coordinate(*x), coordinate(*y));
        }
        let _ = write!(self.body, r#"<polygon points="{}" class="{class}""#, text.trim_end());
        self.close("polygon", hover);
    }

    /// A picture of pixels, stretched without smoothing.
    pub fn image(&mut self, x: f64, y: f64, width: f64, height: f64, png: &[u8]) {
        self.image_of_class([x, y, width, height], png, "");
    }

    fn image_of_class(&mut self, place: [f64; 4], png: &[u8], class: &str) {
        let [x, y, width, height] = place.map(coordinate);
        let data = crate::pack::base64(png);
        let _ = writeln!(
            self.body,
            r#"<image x="{x}" y="{y}" width="{width}" height="{height}" preserveAspectRatio="none" class="px {class}" href="data:image/png;base64,{data}"/>"#
        );
    }

    /// A picture whose cells are shares of the largest value, 0..1; `None` is blank. It is there twice, for light and for dark ground.
    pub(crate) fn magnitudes(
        &mut self,
        [x, y, width, height]: [f64; 4],
        (columns, rows): (usize, usize),
        share: impl Fn(usize, usize) -> Option<f64>,
    ) {
        for (ground, class) in [(Ground::Light, "for-light"), (Ground::Dark, "for-dark")] {
            let mut pixels = Pixels::new(columns, rows.max(1));
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                if let Some(share) = share(column, row) {
                    pixels.set(column, row, magnitude(share, ground));
                }
            }
            self.image_of_class([x, y, width, height], &pixels.png(), class);
        }
    }

    fn close(&mut self, name: &str, hover: &str) {
        let _ = if hover.is_empty() {
            writeln!(self.body, "/>")
        } else {
            writeln!(self.body, "><title>{}</title></{name}>", escape(hover))
        };
    }

    /// What is drawn from here on, below, is in files only: a page that shows several such drawings says it once.
    pub(crate) fn end_in_pages(&mut self) {
        self.page_height = Some(self.height);
    }

    /// As a part of an HTML page, described by `label` for those who cannot see it.
    pub fn inline(&self, label: &str) -> String {
        let (w, h) = (coordinate(self.width), coordinate(self.page_height.unwrap_or(self.height)));
        // A drawing that is saved from the page is whole.
        let whole =
            self.page_height.map_or_else(String::new, |_| format!(" data-height=\"{}\"", coordinate(self.height)));
        let label = escape(label);
        let class = if self.width <= PANEL { "panel" } else { "wide" };
        format!(
            "<svg class=\"{class}\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\"{whole} role=\"img\" aria-label=\"{label}\">\n{}</svg>\n",
            self.body
        )
    }

    /// As a file of its own, with its title above it.
    pub fn standalone(&self, title: &str) -> String {
        self.standalone_of_width(title, None)
    }

    /// The same, as wide as `85mm` or another length of SVG: for a page that says in words of its own what the figure is, so without its
    /// title.
    pub fn standalone_of_width(&self, title: &str, width: Option<&str>) -> String {
        let above = if width.is_some() { 0.0 } else { 34.0 };
        let (w, h) = (coordinate(self.width), coordinate(self.height + above));
        // A title that is wider than the drawing is set closer, not cut off.
        let room = self.width - 24.0;
        let closer = if text_width("t h", title) > room {
            format!(" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", coordinate(room))
        } else {
            String::new()
        };
        let title = escape(title);
        let heading = match width {
            None => format!("<text x=\"12\" y=\"22\" class=\"t h\"{closer}>{title}</text>\n"),
            Some(_) => String::new(),
        };
        // Without a height the view box decides it.
        let size = width
            .map_or_else(|| format!("width=\"{w}\" height=\"{h}\""), |width| format!("width=\"{}\"", escape(width)));
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {w} {h}\" \
             {size} role=\"img\">\n<title>{title}</title>\n<style>{STANDALONE_STYLE}{colours}</style>\n\
             <rect width=\"{w}\" height=\"{h}\" fill=\"#ffffff\"/>\n{heading}\
             <g transform=\"translate(0 {above})\">\n{body}</g>\n</svg>\n",
            colours = crate::colour::series_style(),
            body = self.body
        )
    }
}

impl Display for Svg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.inline(""))
    }
}

/// Classes of a figure in a file of its own: light.
const STANDALONE_STYLE: &str = "\
.t{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#1d2733}.h{font-size:15px;font-weight:600}.m{fill:#5a6775}.b{font-weight:600}\
.s{font-size:10.5px}.grid{stroke:#e3e7ec}.axis{stroke:#8894a1}.one{stroke:#5a6775;stroke-dasharray:4 3}\
.bar{stroke:#1d2733;stroke-width:1.6;fill:none}.dot{stroke:#fff;stroke-width:.7}.cut{stroke:#fff;stroke-width:.8}.resident{stroke:#fff;stroke-width:.8}.median{stroke:#1d2733;stroke-width:2.4}\
.area{stroke:none;fill-opacity:.18}.k{fill:none;stroke-width:1.8}.thin{stroke-width:.7}.frame{fill:none;stroke:#b6bec8}\
.box{fill:#f4f6f8;stroke:#b6bec8}.empty{fill:#e3e7ec}.rest{fill:#e3e7ec;stroke:#5a6775;stroke-width:.7}.px{image-rendering:pixelated}.traffic{fill:none;stroke-linejoin:round}.w1{stroke-width:1}.w2{stroke-width:2}\
.w3{stroke-width:3}.w4{stroke-width:4}.w5{stroke-width:5}.w6{stroke-width:6}.w7{stroke-width:7}.on-dark{fill:#fff}.on-light{fill:#1d2733}.on-cell{fill:#fff;font-weight:600}.on-pale{fill:#1d2733;font-weight:600}.hatch{stroke:#1d2733;stroke-width:.8}.hollow{fill:#fff;stroke:#1d2733;stroke-width:1.4}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_at_an_edge_of_the_drawing_lies_within_it() {
        let placed = |x: f64, text: &str| {
            let mut svg = Svg::new(PANEL, 40.0);
            svg.text(x, 20.0, Anchor::Middle, "m", text);
            svg.body.split('"').nth(1).and_then(|x| x.parse::<f64>().ok()).unwrap()
        };
        // Three figures, a space, an m and an s are 45 wide at a size of 12.
        let right = placed(PANEL - 16.0, "600 ms");
        assert!((PANEL - 24.0..=PANEL - 22.3).contains(&right), "{right}");
        assert!((22.3..=24.0).contains(&placed(0.0, "600 ms")));
        assert_eq!(placed(PANEL / 2.0, "600 ms"), PANEL / 2.0);
        assert_eq!(placed(100.0, &"too long for the drawing ".repeat(9)), 100.0);
    }

    #[test]
    fn what_a_page_says_once_is_whole_in_files_only() {
        let mut svg = Svg::new(PANEL, 40.0);
        svg.end_in_pages();
        svg.height = 60.0;
        assert!(svg.inline("").contains("viewBox=\"0 0 360 40\" width=\"360\" height=\"40\" data-height=\"60\""));
        assert!(svg.standalone("Title").contains("viewBox=\"0 0 360 94\""));
    }

    #[test]
    fn a_title_is_whole_however_long_it_is() {
        let of = |title: &str| Svg::new(PANEL, 40.0).standalone(title);
        assert!(!of("Short").contains("textLength"));
        let long = "Figure 3: sysbench with 128 threads on one core under ULE";
        assert!(of(long).contains("textLength=\"336\"") && of(long).contains(&format!(">{long}</text>")));
        // Bold letters of DejaVu Sans are wider than others.
        assert!(of("1s1n2l2c1t@turin128 under eevdf @ cpus=0-1").contains("textLength=\"336\""));
    }
}
