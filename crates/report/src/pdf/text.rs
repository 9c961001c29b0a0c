//! Texts in the Latin encoding of PDF (WinAnsi, ISO 32000-1 annex D) with a few signs more, and the fonts that they are in.

use std::fmt::Write as _;

/// Widths of the letters from code 32 to 255 in thousandths of the size, from the fonts' own tables.
const REGULAR_WIDTHS: [u16; 224] = [
    318, 401, 460, 838, 636, 950, 780, 275, 390, 390, 500, 838, 318, 361, 318, 337, 636, 636, 636, 636, 636, 636, 636,
    636, 636, 636, 337, 337, 838, 838, 838, 531, 1000, 684, 686, 698, 770, 632, 575, 775, 752, 295, 295, 656, 557, 863,
    748, 787, 603, 787, 695, 635, 611, 732, 684, 989, 685, 611, 685, 390, 337, 390, 838, 500, 500, 613, 635, 550, 635,
    615, 352, 635, 634, 278, 278, 579, 278, 974, 634, 612, 635, 635, 411, 521, 392, 634, 592, 818, 592, 592, 525, 636,
    337, 636, 838, 0, 838, 838, 838, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 318, 318, 518, 518, 590, 500, 1000,
    0, 0, 0, 0, 0, 0, 0, 0, 318, 401, 636, 636, 636, 636, 337, 500, 500, 1000, 471, 612, 838, 361, 1000, 500, 500, 838,
    401, 401, 500, 636, 636, 318, 500, 401, 471, 612, 969, 969, 969, 531, 684, 684, 684, 684, 684, 684, 974, 698, 632,
    632, 632, 632, 295, 295, 295, 295, 775, 748, 787, 787, 787, 787, 787, 838, 787, 732, 732, 732, 732, 611, 605, 630,
    613, 613, 613, 613, 613, 613, 982, 550, 615, 615, 615, 615, 278, 278, 278, 278, 612, 634, 612, 612, 612, 612, 612,
    838, 612, 634, 634, 634, 634, 592, 635, 592,
];
const BOLD_WIDTHS: [u16; 224] = [
    348, 456, 521, 838, 696, 1002, 872, 306, 457, 457, 523, 838, 380, 415, 380, 365, 696, 696, 696, 696, 696, 696, 696,
    696, 696, 696, 400, 400, 838, 838, 838, 580, 1000, 774, 762, 734, 830, 683, 683, 821, 837, 372, 372, 775, 637, 995,
    837, 850, 733, 850, 770, 720, 682, 812, 774, 1103, 771, 724, 725, 457, 365, 457, 838, 500, 500, 675, 716, 593, 716,
    678, 435, 716, 712, 343, 343, 665, 343, 1042, 712, 687, 716, 716, 493, 595, 478, 712, 652, 924, 645, 652, 582, 712,
    365, 712, 838, 0, 838, 838, 838, 0, 0, 1000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 380, 380, 657, 657, 639, 500, 1000,
    0, 0, 0, 0, 0, 0, 0, 0, 348, 456, 696, 696, 636, 696, 365, 500, 500, 1000, 564, 646, 838, 415, 1000, 500, 500, 838,
    438, 438, 500, 736, 636, 380, 500, 438, 564, 646, 1035, 1035, 1035, 580, 774, 774, 774, 774, 774, 774, 1085, 734,
    683, 683, 683, 683, 372, 372, 372, 372, 838, 837, 850, 850, 850, 850, 850, 838, 850, 812, 812, 812, 812, 724, 738,
    719, 675, 675, 675, 675, 675, 675, 1048, 593, 678, 678, 678, 678, 343, 343, 343, 343, 687, 712, 687, 687, 687, 687,
    687, 838, 687, 712, 712, 712, 712, 652, 716, 652,
];

/// A font that is put into every file.
pub(super) struct Font {
    name: &'static str,
    widths: &'static [u16; 224],
    /// Left, bottom, right and top of its letters together.
    extent: [i32; 4],
    /// Width of its stems.
    stem: u32,
    /// The font's file: Latin letters only.
    pub(super) letters: &'static [u8],
}

/// The font of most texts.
pub(super) const REGULAR: Font = Font {
    name: "WARMCO+DejaVuSans",
    widths: &REGULAR_WIDTHS,
    extent: [-1021, -463, 1793, 1232],
    stem: 80,
    letters: include_bytes!("fonts/DejaVuSans.ttf"),
};
/// That of headings.
pub(super) const BOLD: Font = Font {
    name: "WARMCO+DejaVuSans-Bold",
    widths: &BOLD_WIDTHS,
    extent: [-1070, -416, 1975, 1175],
    stem: 140,
    letters: include_bytes!("fonts/DejaVuSans-Bold.ttf"),
};

impl Font {
    /// The object of the font, whose descriptor is another one.
    pub(super) fn font(&self, descriptor: usize) -> String {
        let widths: Vec<String> = self.widths.iter().map(u16::to_string).collect();
        format!(
            "<< /Type /Font /Subtype /TrueType /BaseFont /{} /FirstChar 32 /LastChar 255 /Widths [{}] /FontDescriptor {descriptor} 0 R \
             /Encoding << /Type /Encoding /BaseEncoding /WinAnsiEncoding /Differences [128 /greaterequal /lessequal /arrowright] >> >>",
            self.name,
            widths.join(" ")
        )
    }

    /// Its descriptor; the letters are in another object.
    pub(super) fn descriptor(&self, letters: usize) -> String {
        let [left, bottom, right, top] = self.extent;
        format!(
            "<< /Type /FontDescriptor /FontName /{} /Flags 32 /FontBBox [{left} {bottom} {right} {top}] /ItalicAngle 0 /Ascent 928 \
             /Descent -236 /CapHeight 729 /StemV {} /FontFile2 {letters} 0 R >>",
            self.name, self.stem
        )
    }
}

/// Width of a text of size 1.
pub(crate) fn width(text: &str, bold: bool) -> f64 {
    let widths = if bold { BOLD.widths } else { REGULAR.widths };
    text.chars().map(|c| f64::from(widths[usize::from(code(c)) - 32]) / 1000.0).sum()
}

/// The code of a letter; a question mark's if the encoding has not got it.
fn code(c: char) -> u8 {
    match c {
        ' '..='~' => c as u8,
        '\u{a0}'..='\u{ff}' => c as u32 as u8,
        '\u{2265}' => 0x80,
        '\u{2264}' => 0x81,
        '\u{2192}' => 0x82,
        '\u{2026}' => 0x85,
        '\u{2018}' => 0x91,
        '\u{2019}' => 0x92,
        '\u{201c}' => 0x93,
        '\u{201d}' => 0x94,
        '\u{2022}' => 0x95,
        // A minus sign is as wide as a dash, not as a hyphen.
        '\u{2013}' | '\u{2212}' => 0x96,
        '\u{2014}' => 0x97,
        '\u{3bc}' => 0xb5,
        _ => b'?',
    }
}

/// A text as PDF writes it.
pub(super) fn literal(text: &str) -> String {
    let mut out = String::from("(");
    for code in text.chars().map(code) {
        let _ = match code {
            b'(' | b')' | b'\\' => write!(out, "\\{}", char::from(code)),
            b' '..=b'~' => write!(out, "{}", char::from(code)),
            _ => write!(out, "\\{code:03o}"),
        };
    }
    out.push(')');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_outside_the_encoding_are_question_marks_and_signs_are_escaped() {
        assert_eq!(literal("a(b)\\ 5 µs – ≥ 中"), "(a\\(b\\)\\\\ 5 \\265s \\226 \\200 ?)");
        assert!((width("100", false) - 1.908).abs() < 1e-9, "a figure of DejaVu Sans is 0.636 wide");
    }
}
