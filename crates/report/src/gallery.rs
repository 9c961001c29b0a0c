//! A page of single figures, each beside words about it. It needs no script and nothing from a network.

use std::fmt::Write as _;

use crate::figures::Figure;
use crate::html::{drawings, policy_hash, style};
use crate::svg::escape;
use warmcore_lab::experiment::TOOL_VERSION;

/// A figure and what a reader should compare it with.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// Its heading.
    pub heading: String,
    /// What was published of it; empty where nothing was.
    pub words: String,
    /// The figure.
    pub figure: Figure,
    /// The same, laid out for a small screen; none where it is narrow anyhow.
    pub narrow: Option<Figure>,
}

/// The page.
pub fn page(title: &str, introduction: &str, exhibits: &[Exhibit]) -> String {
    let mut body = format!("<h1>{}</h1>\n<p>{}</p>\n", escape(title), escape(introduction));
    for Exhibit { heading, words, figure, narrow } in exhibits {
        let published =
            if words.is_empty() { String::new() } else { format!("<p><b>Published:</b> {}</p>\n", escape(words)) };
        let _ = writeln!(
            body,
            "<section>\n<h2>{}</h2>\n{published}<figure>{}<figcaption><p>{}</p></figcaption></figure>\n</section>",
            escape(heading),
            drawings(figure, narrow.as_ref()),
            escape(&figure.caption)
        );
    }
    let style = style();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; style-src '{hash}'; base-uri 'none'; \
         form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"generator\" content=\"warmcore {TOOL_VERSION}\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n<main id=\"main\">\n{body}</main>\n</body>\n</html>\n",
        hash = policy_hash(&style),
        title = escape(title),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::Svg;

    #[test]
    fn words_cannot_become_markup() {
        let figure = Figure {
            id: "f".into(),
            title: "a < b".into(),
            caption: "c".into(),
            svg: Svg::new(10.0, 10.0),
            csv: String::new(),
        };
        let exhibit = Exhibit { heading: "<h>".into(), words: "<script>".into(), figure, narrow: None };
        let page = page("<t>", "&", &[exhibit]);
        assert!(
            !page.contains("<script>") && page.contains("&lt;script&gt;") && page.contains("<h2>&lt;h&gt;</h2>"),
            "{page}"
        );
    }
}
