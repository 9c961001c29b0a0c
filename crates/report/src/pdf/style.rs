//! What classes and attributes make of an element: the part of CSS that the figures' own style sheet uses.

use std::collections::BTreeMap;

use roxmltree::Node;

/// Rules of single classes; later ones go before earlier ones.
pub(super) struct Rules(BTreeMap<String, Vec<(String, String)>>);

/// How an element is drawn.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Look {
    /// Nothing if it is `none`.
    pub fill: Option<[u8; 3]>,
    pub stroke: Option<[u8; 3]>,
    pub stroke_width: f64,
    pub dashes: Vec<f64>,
    pub opacity: f64,
    pub fill_opacity: f64,
    pub font_size: f64,
    pub bold: bool,
    pub shown: bool,
}

impl Default for Look {
    /// What SVG begins with.
    fn default() -> Self {
        Self {
            fill: Some([0; 3]),
            stroke: None,
            stroke_width: 1.0,
            dashes: Vec::new(),
            opacity: 1.0,
            fill_opacity: 1.0,
            font_size: 12.0,
            bold: false,
            shown: true,
        }
    }
}

impl Rules {
    /// Of a style sheet. Rules with other selectors than one class are about pages and do not concern a figure of its own.
    pub fn of(sheet: &str) -> Self {
        let mut rules: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for (position, rule) in sheet.split('}').enumerate() {
            let Some((selector, body)) = rule.split_once('{') else { continue };
            let Some(class) = selector.trim().strip_prefix('.').filter(|class| !class.contains(['.', ' ', ':', ',']))
            else {
                continue;
            };
            let declarations = body.split(';').filter_map(|one| one.split_once(':'));
            // The position keeps the order of rules of several classes of an element.
            let order = format!("{position:06}");
            rules.entry(class.to_owned()).or_default().extend(
                declarations.map(|(name, value)| (format!("{order} {}", name.trim()), value.trim().to_owned())),
            );
        }
        Self(rules)
    }

    /// The look of an element with these ancestors.
    pub fn look(&self, node: Node<'_, '_>, inherited: &Look) -> Look {
        // An opacity is of the whole group and is not passed on; here groups have none.
        let mut look = Look { opacity: 1.0, ..inherited.clone() };
        node.attributes().for_each(|attribute| look.set(attribute.name(), attribute.value()));
        let classes = node.attribute("class").unwrap_or_default().split_whitespace();
        let mut declared: Vec<&(String, String)> = classes.filter_map(|class| self.0.get(class)).flatten().collect();
        // Within one rule the order of declarations stays.
        declared.sort_by_key(|(name, _)| name.split(' ').next().unwrap_or_default().to_owned());
        for (name, value) in declared {
            look.set(name.split_once(' ').map_or("", |(_, name)| name), value);
        }
        look
    }
}

impl Look {
    fn set(&mut self, name: &str, value: &str) {
        let number = || value.trim_end_matches("px").parse::<f64>();
        match name {
            "fill" => self.fill = colour(value, self.fill),
            "stroke" => self.stroke = colour(value, self.stroke),
            "stroke-width" => self.stroke_width = number().unwrap_or(self.stroke_width),
            "stroke-dasharray" => self.dashes = value.split([' ', ',']).filter_map(|dash| dash.parse().ok()).collect(),
            "opacity" => self.opacity = number().unwrap_or(self.opacity),
            "fill-opacity" => self.fill_opacity = number().unwrap_or(self.fill_opacity),
            "font-size" => self.font_size = number().unwrap_or(self.font_size),
            "font-weight" => self.bold = matches!(value, "bold" | "600" | "700"),
            "display" => self.shown = value != "none",
            "font" => {
                let size = value.split(' ').find_map(|word| word.strip_suffix("px")?.parse().ok());
                self.font_size = size.unwrap_or(self.font_size);
            }
            _ => {}
        }
    }
}

/// `none`, `#rgb` or `#rrggbb`; anything else leaves what was there.
fn colour(text: &str, before: Option<[u8; 3]>) -> Option<[u8; 3]> {
    if text == "none" {
        return None;
    }
    let digits: Option<Vec<u8>> =
        text.strip_prefix('#').and_then(|hex| hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect());
    match digits.as_deref() {
        Some([r, g, b]) => Some([r * 17, g * 17, b * 17]),
        Some([r1, r2, g1, g2, b1, b2]) => Some([r1 * 16 + r2, g1 * 16 + g2, b1 * 16 + b2]),
        _ => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_rules_go_before_earlier_ones_and_classes_before_attributes() {
        let rules = Rules::of(".a{fill:#123456;stroke-width:2}.b{fill:none}.a.b{fill:#fff}.c{fill:#f00}");
        let text = "<r><x class=\"b a\"/><x class=\"c a\" fill=\"#00f\"/><x fill=\"#00f\"/></r>";
        let document = roxmltree::Document::parse(text).unwrap();
        let looks: Vec<Look> =
            document.root_element().children().map(|node| rules.look(node, &Look::default())).collect();
        assert_eq!((looks[0].fill, looks[0].stroke_width), (None, 2.0));
        assert_eq!((looks[1].fill, looks[2].fill), (Some([255, 0, 0]), Some([0, 0, 255])));
    }
}
