//! Colours that readers with any kind of colour vision can tell apart, on light and on dark ground.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

/// Colours of schedulers and categories: Okabe and Ito's set (2008) without black and yellow, darkened or lightened
/// where 3:1 against white and against the page's dark ground asked for it.
pub const SERIES: [&str; 8] = ["#0072b2", "#d55e00", "#00876a", "#b8579a", "#8a6d00", "#4a86c8", "#7a7f87", "#a34b3f"];

/// Colours of the causes of where the time went, in their order: computing in blues, the memory hierarchy from yellow to
/// dark red with the distance, the kernel in greens, waiting for a CPU or for a quota in violet, what follows from others in greys.
pub const CAUSES: [&str; 21] = [
    "#2c77b5", "#5493cd", "#9a8c00", "#bd7800", "#d9622b", "#b8400c", "#b6455e", "#c42d61", "#d0718a", "#ac419f",
    "#a55d35", "#849336", "#299b6e", "#227a5c", "#33857b", "#a37dce", "#8759c0", "#b06ab3", "#848f9b", "#6a7787",
    "#8a8578",
];

/// The kinds of a scheduler's time beside switches, which have its own colour: class and fill.
const KINDS: [(&str, &str); 4] =
    [("wakeup", "#359e5f"), ("tick", "#5f872d"), ("balance", "#5ea04d"), ("interrupt", "#7d8a1f")];

/// Dashes of curves, one for each colour of [`SERIES`], so that curves differ without colours too. The first is whole.
const DASHES: [&str; 8] = ["none", "7 3", "2 2.5", "9 3 2 3", "14 4", "4 2", "9 3 2 3 2 3", "14 3 4 3"];

/// The dashes of curve `index` of a list, as SVG's `stroke-dasharray`.
pub(crate) fn dashes(index: usize) -> &'static str {
    DASHES[index % DASHES.len()]
}

/// Colour of edges for migrations.
pub(crate) const TRAFFIC: &str = "#d0602a";

/// Classes of the scale of magnitude.
pub const STEPS: usize = 24;

/// The class rules `.c0 …` (fill, or the ground of a key in a table), `.k0 …` (stroke and dashes), `.q0 …` (fill, causes) and `.g0 …` (fill,
/// magnitudes on light ground).
pub fn series_style() -> String {
    let mut text = String::new();
    for (index, colour) in SERIES.iter().enumerate() {
        let dashes = dashes(index);
        let _ = write!(
            text,
            ".c{index}{{fill:{colour}}}.key.c{index}{{background:{colour}}}.k{index}{{stroke:{colour};stroke-dasharray:{dashes}}}"
        );
    }
    for (index, colour) in CAUSES.iter().enumerate() {
        let _ = write!(text, ".q{index}{{fill:{colour}}}");
    }
    for (kind, colour) in KINDS {
        let _ = write!(text, ".{kind}{{fill:{colour}}}");
    }
    magnitudes(&mut text, "", Ground::Light);
    let _ = write!(text, ".traffic{{stroke:{TRAFFIC}}}.for-dark{{display:none}}");
    text
}

/// The rules of a page that follows its reader's choice of light or dark: what differs on dark ground.
pub fn dark_style() -> String {
    let mut text = String::new();
    let dark = |text: &mut String, root: &str| {
        magnitudes(text, root, Ground::Dark);
        let _ = write!(text, "{root}.for-dark{{display:inline}}{root}.for-light{{display:none}}");
    };
    dark(&mut text, ":root[data-theme='dark'] ");
    text.push_str("@media screen and (prefers-color-scheme:dark){");
    dark(&mut text, ":root:not([data-theme='light']) ");
    text.push('}');
    text
}

fn magnitudes(text: &mut String, root: &str, ground: Ground) {
    for step in 0..STEPS {
        let colour = hex(magnitude(step as f64 / (STEPS - 1) as f64, ground));
        let _ = write!(text, "{root}.g{step}{{fill:{colour}}}");
    }
}

/// The number of the class for a share of the largest value, 0..1.
pub fn step(share: f64) -> usize {
    (share.clamp(0.0, 1.0) * (STEPS - 1) as f64).round() as usize
}

/// The number of the class for entry `index` of a list.
pub fn series(index: usize) -> usize {
    index % SERIES.len()
}

/// Hues for LLCs, tasks and other groups, in an order that keeps neighbours apart: eight hues of one lightness, then eight darker
/// ones, then eight paler ones. Each stands out from light and from dark ground.
const HUES: [[u8; 3]; 24] = [
    [0x2b, 0x8e, 0xd1],
    [0xbd, 0x78, 0x27],
    [0x1f, 0x99, 0x75],
    [0xdc, 0x53, 0xb1],
    [0x8d, 0x77, 0xe3],
    [0x98, 0x88, 0x1f],
    [0xd9, 0x65, 0x46],
    [0x39, 0x9b, 0x20],
    [0x3e, 0x65, 0xd2],
    [0x79, 0x6d, 0x1c],
    [0x1d, 0x78, 0x7a],
    [0xc6, 0x2f, 0x65],
    [0x91, 0x45, 0xd3],
    [0x62, 0x73, 0x1b],
    [0x95, 0x61, 0x23],
    [0x1d, 0x7d, 0x2a],
    [0x48, 0x82, 0x93],
    [0xa3, 0x6e, 0x50],
    [0x43, 0x87, 0x66],
    [0xaf, 0x5c, 0xa4],
    [0x74, 0x73, 0xba],
    [0x8e, 0x78, 0x46],
    [0xb2, 0x64, 0x62],
    [0x5b, 0x85, 0x42],
];

/// What the page's script needs to colour as the figures do.
#[derive(Clone, Debug, Serialize)]
pub struct Palette {
    /// Colours of groups.
    hues: [[u8; 3]; 24],
    /// Colours of what ran beside a run, by the first word of its name.
    beside: BTreeMap<&'static str, [u8; 3]>,
    /// Anchors of the scale of magnitude on light ground.
    light: [[u8; 3]; 6],
    /// The same on dark ground.
    dark: [[u8; 3]; 6],
}

/// The colours of groups and magnitudes: the only place where they stand.
pub fn palette() -> Palette {
    Palette { hues: HUES, beside: BESIDE.into(), light: LIGHT, dark: DARK }
}

/// The colour of group `index`; from the twenty-fifth on they begin again.
pub fn group(index: usize) -> [u8; 3] {
    HUES[index % HUES.len()]
}

/// Colours of what ran beside a run, by the first word of its name: other threads and times offline are grey, so that the run's own tasks are
/// seen first.
const BESIDE: [(&str, [u8; 3]); 3] =
    [("others", [128, 134, 144]), ("interrupts", [204, 37, 94]), ("offline", [150, 132, 100])];

/// The colour of a task that ran beside a run, by its name.
pub fn beside(name: &str) -> [u8; 3] {
    let known = BESIDE.iter().find(|(word, _)| name.split(' ').next() == Some(*word));
    known.map_or(BESIDE[0].1, |(_, colour)| *colour)
}

/// A colour between two others.
pub fn mix(from: [u8; 3], to: [u8; 3], share: f64) -> [u8; 3] {
    let share = share.clamp(0.0, 1.0);
    std::array::from_fn(|i| (f64::from(from[i]) + (f64::from(to[i]) - f64::from(from[i])) * share).round() as u8)
}

/// What a drawing lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ground {
    /// White, or nearly so.
    Light,
    /// The dark page.
    Dark,
}

/// Anchors of a scale of magnitude on light ground: ever darker, in hues that survive red-green blindness (from ochre to blue, after
/// cividis: Nuñez, Anderton and Renslow, 2018). The least one stands out from the ground.
const LIGHT: [[u8; 3]; 6] = [
    [0xa0, 0x8a, 0x2e],
    [0x77, 0x80, 0x5f],
    [0x4c, 0x70, 0x83],
    [0x2f, 0x5a, 0x8c],
    [0x1c, 0x3f, 0x78],
    [0x10, 0x26, 0x5a],
];
/// On dark ground: the other way round, ever lighter.
const DARK: [[u8; 3]; 6] = [
    [0x3f, 0x73, 0xad],
    [0x5b, 0x8f, 0xb0],
    [0x84, 0xa6, 0x94],
    [0xb5, 0xb4, 0x78],
    [0xe2, 0xcb, 0x70],
    [0xff, 0xf0, 0xb4],
];

/// The colour for a share of the largest value, 0..1. What is nothing at all has no colour.
pub fn magnitude(share: f64, ground: Ground) -> [u8; 3] {
    let scale = if ground == Ground::Light { &LIGHT } else { &DARK };
    let position = share.clamp(0.0, 1.0) * (scale.len() - 1) as f64;
    let below = (position as usize).min(scale.len() - 2);
    mix(scale[below], scale[below + 1], position - below as f64)
}

/// `#rrggbb`.
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

    fn parse(hex: &str) -> [u8; 3] {
        std::array::from_fn(|i| u8::from_str_radix(&hex[1 + 2 * i..3 + 2 * i], 16).unwrap())
    }

    /// Contrast as WCAG 2 defines it.
    fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    const GROUNDS: [(Ground, [u8; 3]); 2] = [(Ground::Light, [255, 255, 255]), (Ground::Dark, [0x14, 0x1a, 0x21])];

    #[test]
    fn every_mark_that_carries_meaning_stands_out_from_light_and_dark_ground() {
        let named = SERIES.iter().chain(&CAUSES).chain([&TRAFFIC]).copied();
        let named = named.chain(KINDS.map(|(_, colour)| colour)).map(parse);
        let marks: Vec<[u8; 3]> = named.chain((0..HUES.len()).map(group)).collect();
        for (ground, of_ground) in GROUNDS {
            let magnitudes = (0..STEPS).map(|step| magnitude(step as f64 / (STEPS - 1) as f64, ground));
            for mark in marks.iter().copied().chain(magnitudes) {
                assert!(contrast(mark, of_ground) >= 3.0, "{} on {ground:?}: {}", hex(mark), contrast(mark, of_ground));
            }
        }
    }

    #[test]
    fn curves_differ_by_their_dashes_where_no_colour_is_seen() {
        let different: std::collections::BTreeSet<&str> = (0..SERIES.len()).map(dashes).collect();
        assert_eq!(different.len(), SERIES.len(), "{DASHES:?}");
        let style = series_style();
        let rule = |index: usize| format!(".k{index}{{stroke:{};stroke-dasharray:{}}}", SERIES[index], dashes(index));
        assert!((0..SERIES.len()).all(|index| style.contains(&rule(index))), "{style}");
    }

    #[test]
    fn a_page_s_style_has_the_scale_of_both_grounds_and_a_file_s_that_of_light_ground() {
        let [light, dark] =
            [Ground::Light, Ground::Dark].map(|ground| format!(".g0{{fill:{}}}", hex(magnitude(0.0, ground))));
        assert!(series_style().contains(&light) && !series_style().contains(&dark));
        assert_eq!(dark_style().matches(&dark).count(), 2, "chosen by the reader, and by the system");
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
    fn the_scale_of_magnitude_leaves_its_ground_step_by_step() {
        let steps = |ground| (0..=20).map(move |i| luminance(magnitude(f64::from(i) / 20.0, ground)));
        let (light, dark): (Vec<f64>, Vec<f64>) = (steps(Ground::Light).collect(), steps(Ground::Dark).collect());
        assert!(light.windows(2).all(|pair| pair[1] < pair[0]), "{light:?}");
        assert!(dark.windows(2).all(|pair| pair[1] > pair[0]), "{dark:?}");
    }

    #[test]
    fn what_ran_beside_a_run_has_no_colour_of_its_tasks_and_is_seen_on_both_grounds() {
        for (name, colour) in BESIDE {
            assert!(!HUES.contains(&colour) && beside(&format!("{name} on cpu3")) == colour);
            for ground in [[0xff; 3], [0x11, 0x1a, 0x22]].map(luminance) {
                let own = luminance(colour);
                let contrast = (own.max(ground) + 0.05) / (own.min(ground) + 0.05);
                assert!(contrast >= 3.0, "{name}: {contrast}");
            }
        }
    }

    #[test]
    fn groups_next_to_each_other_differ() {
        for index in 0..48 {
            assert_ne!(group(index), group(index + 1));
        }
    }
}
