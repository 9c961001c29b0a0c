//! Colours that readers with any kind of colour vision can tell apart, on light and on dark ground.

use std::fmt::Write as _;

use serde::Serialize;

/// Colours of schedulers and categories: Okabe and Ito's set (2008) without black and yellow, darkened or lightened
/// where 3:1 against white and against the page's dark ground asked for it.
pub const SERIES: [&str; 8] = ["#0072b2", "#d55e00", "#00876a", "#b8579a", "#8a6d00", "#4a86c8", "#7a7f87", "#a34b3f"];

/// Colours of the causes of where the time went, in their order: computing in blues, the memory hierarchy from yellow to
/// dark red with the distance, the kernel in greens, waiting for a CPU in violet, what follows from others in greys.
pub const CAUSES: [&str; 18] = [
    "#2f7fc1", "#8fb8de", "#f2cf63", "#eda93b", "#e07b1f", "#c2410c", "#b5475f", "#7f1d3f", "#d98ba0", "#5b2a55",
    "#b9c86a", "#2a9d6f", "#1f6f54", "#b8a9c9", "#7c5aa6", "#9aa3ad", "#c3c9d0", "#a3acb6",
];

/// The class rules `.c0 …` (fill, or the ground of a key in a table), `.k0 …` (stroke) and `.q0 …` (fill, causes).
#[must_use]
pub fn series_style() -> String {
    let mut text = String::new();
    for (index, colour) in SERIES.iter().enumerate() {
        let _ =
            write!(text, ".c{index}{{fill:{colour}}}.key.c{index}{{background:{colour}}}.k{index}{{stroke:{colour}}}");
    }
    for (index, colour) in CAUSES.iter().enumerate() {
        let _ = write!(text, ".q{index}{{fill:{colour}}}");
    }
    // The kinds of a scheduler's time within its colour.
    for (kind, opacity) in [("wakeup", 0.82), ("tick", 0.66), ("balance", 0.5), ("numa", 0.36)] {
        let _ = write!(text, ".{kind}{{fill-opacity:{opacity}}}");
    }
    text
}

/// The number of the class for entry `index` of a list.
#[must_use]
pub fn series(index: usize) -> usize {
    index % SERIES.len()
}

/// Eight hues for LLCs and other groups, in an order that keeps neighbours apart.
const HUES: [[u8; 3]; 8] = [
    [0x33, 0x8f, 0xd0],
    [0xe0, 0x8a, 0x1e],
    [0x2a, 0xa3, 0x7f],
    [0xc9, 0x6b, 0xa8],
    [0x8c, 0x7a, 0xd0],
    [0xb0, 0x9a, 0x1a],
    [0xd0, 0x5a, 0x3c],
    [0x6f, 0x9a, 0x5a],
];

/// What the page's script needs to colour as the figures do.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Palette {
    /// Hues of groups; after the last one lighter, then darker ones follow.
    hues: [[u8; 3]; 8],
    /// Shares of white and black in those.
    lighter: f64,
    darker: f64,
    /// Anchors of the scale of magnitude.
    scale: [[u8; 3]; 6],
}

/// The colours of groups and magnitudes: the only place where they stand.
#[must_use]
pub fn palette() -> Palette {
    Palette { hues: HUES, lighter: LIGHTER, darker: DARKER, scale: SCALE }
}

/// Share of white in the second round of hues.
const LIGHTER: f64 = 0.42;
/// Share of black in the third.
const DARKER: f64 = 0.38;

/// The colour of group `index`: one hue each; from the ninth on the same hues, lighter, then darker.
#[must_use]
pub fn group(index: usize) -> [u8; 3] {
    let hue = HUES[index % HUES.len()];
    match index / HUES.len() % 3 {
        0 => hue,
        1 => mix(hue, [255, 255, 255], LIGHTER),
        _ => mix(hue, [0, 0, 0], DARKER),
    }
}

/// A colour between two others.
#[must_use]
pub fn mix(from: [u8; 3], to: [u8; 3], share: f64) -> [u8; 3] {
    let share = share.clamp(0.0, 1.0);
    std::array::from_fn(|i| (f64::from(from[i]) + (f64::from(to[i]) - f64::from(from[i])) * share).round() as u8)
}

/// Anchors of a scale of magnitude whose lightness falls steadily and whose hues survive red-green blindness, after
/// cividis (Nuñez, Anderton and Renslow, 2018), from light to dark. The last one stands out from the light and the dark ground.
const SCALE: [[u8; 3]; 6] = [
    [0xf2, 0xe8, 0xb8],
    [0xe0, 0xcb, 0x76],
    [0xbd, 0xb2, 0x7c],
    [0x96, 0x98, 0x8f],
    [0x6f, 0x87, 0xa0],
    [0x3f, 0x73, 0xad],
];

/// The colour for a share of the largest value, 0..1.
#[must_use]
pub fn magnitude(share: f64) -> [u8; 3] {
    let position = share.clamp(0.0, 1.0) * (SCALE.len() - 1) as f64;
    let below = (position as usize).min(SCALE.len() - 2);
    mix(SCALE[below], SCALE[below + 1], position - below as f64)
}

/// `#rrggbb`.
#[must_use]
pub fn hex(rgb: [u8; 3]) -> String {
    format!("#{:02x}{:02x}{:02x}", rgb[0], rgb[1], rgb[2])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(rgb: [u8; 3]) -> f64 {
        let channel = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2])
    }

    #[test]
    fn series_stand_out_from_light_and_dark_ground() {
        let parse = |hex: &str| std::array::from_fn(|i| u8::from_str_radix(&hex[1 + 2 * i..3 + 2 * i], 16).unwrap());
        for ground in [[255, 255, 255], [0x14, 0x1a, 0x21]] {
            for colour in SERIES {
                let (a, b) = (luminance(parse(colour)) + 0.05, luminance(ground) + 0.05);
                assert!(a.max(b) / a.min(b) >= 3.0, "{colour} on {ground:?}: {}", a.max(b) / a.min(b));
            }
        }
    }

    #[test]
    fn the_largest_value_stands_out_from_light_and_dark_ground() {
        for ground in [[255, 255, 255], [0x14, 0x1a, 0x21]] {
            let (a, b) = (luminance(magnitude(1.0)) + 0.05, luminance(ground) + 0.05);
            assert!(a.max(b) / a.min(b) >= 3.0, "on {ground:?}: {}", a.max(b) / a.min(b));
        }
    }

    #[test]
    fn every_cause_has_a_colour_that_differs_from_its_neighbours() {
        let parse = |hex: &str| -> [f64; 3] {
            std::array::from_fn(|i| f64::from(u8::from_str_radix(&hex[1 + 2 * i..3 + 2 * i], 16).unwrap()))
        };
        assert_eq!(CAUSES.len(), warmcore_lab::time_split::CAUSES.len());
        for pair in CAUSES.windows(2) {
            let (a, b) = (parse(pair[0]), parse(pair[1]));
            let distance = a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            assert!(distance > 25.0, "{pair:?}: {distance}");
        }
    }

    #[test]
    fn the_scale_of_magnitude_gets_darker_step_by_step() {
        let steps: Vec<f64> = (0..=20).map(|i| luminance(magnitude(f64::from(i) / 20.0))).collect();
        assert!(steps.windows(2).all(|pair| pair[1] < pair[0]), "{steps:?}");
    }

    #[test]
    fn groups_next_to_each_other_differ() {
        for index in 0..48 {
            assert_ne!(group(index), group(index + 1));
        }
    }
}
