//! Gains of candidates over a baseline in many cases, such as those of a sweep: a map of cases and candidates, their intervals, and how a
//! gain changes with a number in a case's name.

use std::collections::BTreeMap;

use super::labels::{LINE, Labels, fitting, lines_within};
use super::{Csv, Figure, NARROW, file_name, scheduler_name};
use crate::colour::{hex, mix, series};
use crate::scale::{Scale, number_ticks};
use crate::svg::{Anchor, CURVE_KEY, Svg, text_width};
use crate::units::three_digits;

/// A gain of a candidate in a case.
#[derive(Clone, Debug)]
pub struct Gained {
    /// Where: a machine.
    pub place: String,
    /// Doing what: a workload.
    pub case: String,
    /// Who: a scheduler.
    pub candidate: String,
    /// Factor of improvement over the baseline; none where a trial has no value.
    pub gain: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Whether the trials show that it is a gain or a loss.
    pub shown: bool,
}

impl Gained {
    fn row(&self) -> String {
        format!("{}: {}", self.place, self.case)
    }
}

/// Gains of this factor, and losses of its inverse, have the strongest colours.
const STRONGEST: f64 = 1.5;
const GAIN: [u8; 3] = [0x1c, 0x5f, 0xa8];
const LOSS: [u8; 3] = [0xc2, 0x4d, 0x0f];
/// Height of a row of the map and of the intervals.
const ROW: f64 = 22.0;
/// Share of a wide figure that names of rows take at most.
const NAMES: f64 = 0.42;

/// What each is about: machine and workload, or where all have one machine the workload.
fn names(gains: &[Gained]) -> Vec<String> {
    let several = gains.iter().any(|one| one.place != gains[0].place);
    gains.iter().map(|one| if several { one.row() } else { one.case.clone() }).collect()
}

/// A number that is varied over the cases of a study.
#[derive(Clone, PartialEq, Debug)]
pub struct VariedNumber {
    /// What it is called.
    pub name: String,
    /// What it is in some case.
    pub values: Vec<f64>,
}

/// All of them, so wide. `baseline`: whom the candidates are compared with.
pub fn all(gains: &[Gained], baseline: &str, wide: f64) -> Vec<Figure> {
    all_over(gains, baseline, &[], wide)
}

/// The same, over numbers that have names.
pub fn all_over(gains: &[Gained], baseline: &str, varied: &[VariedNumber], wide: f64) -> Vec<Figure> {
    let mut figures = Vec::new();
    if !gains.is_empty() {
        figures.push(map(gains, baseline, wide));
        figures.extend(intervals(gains, baseline, wide));
        figures.extend(responses(gains, baseline, varied, wide));
    }
    figures
}

/// Values in the order in which they occur first.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for value in values {
        if !found.iter().any(|other| other == value) {
            found.push(value.to_owned());
        }
    }
    found
}

fn data(gains: &[Gained]) -> String {
    let mut csv = Csv::new(&["machine", "workload", "candidate", "gain", "interval_low", "interval_high", "shown"]);
    let text = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for one in gains {
        let (low, high) = (text(one.interval.map(|of| of.0)), text(one.interval.map(|of| of.1)));
        let shown = one.shown.to_string();
        csv.row(&[one.place.as_str(), &one.case, &one.candidate, &text(one.gain), &low, &high, &shown]);
    }
    csv.finish()
}

/// A cell for each case and candidate; what the trials do not show is hatched, without a colour.
fn map(gains: &[Gained], baseline: &str, wide: f64) -> Figure {
    let names = names(gains);
    let rows = distinct(names.iter().map(String::as_str));
    let candidates = distinct(gains.iter().map(|one| one.candidate.as_str()));
    let labels = Labels::new(&rows, wide, NAMES, 0.0);
    let cell = ((wide - labels.left - 10.0) / candidates.len() as f64).min(150.0);
    let headings: Vec<Vec<String>> =
        candidates.iter().map(|candidate| lines_within(&scheduler_name(candidate), "s b", cell - 6.0)).collect();
    let top = 12.0 + LINE * headings.iter().map(Vec::len).max().unwrap_or(0) as f64;
    let bottom = top + labels.heights(ROW);
    let mut svg = Svg::new(wide, bottom + 30.0);
    for (column, lines) in headings.iter().enumerate() {
        let x = labels.left + cell * (column as f64 + 0.5);
        for (up, line) in lines.iter().rev().enumerate() {
            svg.text(x, top - 6.0 - LINE * up as f64, Anchor::Middle, "s b", line);
        }
    }
    let mut y = top;
    for (row, name) in rows.iter().enumerate() {
        let (begin, height) = labels.draw(&mut svg, row, y, ROW);
        y += labels.height(row, ROW);
        for (column, candidate) in candidates.iter().enumerate() {
            let found = gains.iter().zip(&names).find(|(one, of)| *of == name && one.candidate == *candidate);
            let Some((one, _)) = found else { continue };
            draw_cell(&mut svg, [labels.left + cell * column as f64, begin, cell, height], one);
        }
    }
    // The key explains what is drawn.
    let has = |which: fn(&Gained) -> bool| gains.iter().any(which);
    let mut left = 12.0;
    let mut place_of = |word: &str| {
        let x = left;
        left += 32.0 + text_width("s", word);
        [x, bottom + 10.0, 12.0, 12.0]
    };
    let better: (&str, f64, fn(&Gained) -> bool) =
        ("better", STRONGEST, |one| one.shown && drawn_gain(one).is_some_and(|gain| gain >= 1.0));
    let worse: (&str, f64, fn(&Gained) -> bool) =
        ("worse", 1.0 / STRONGEST, |one| one.shown && drawn_gain(one).is_some_and(|gain| gain < 1.0));
    for (word, gain, _) in [better, worse].into_iter().filter(|key| has(key.2)) {
        let [x, y, width, height] = place_of(word);
        svg.rect_with(x, y, width, height, &format!(r#"fill="{}""#, hex(fill(gain))), "");
        svg.text(x + 17.0, y + 10.0, Anchor::Start, "s", word);
    }
    if has(|one| drawn_gain(one).is_some() && !one.shown) {
        let word = "not shown by the trials";
        let place = place_of(word);
        svg.rect(place[0], place[1], place[2], place[3], "empty", "");
        hatch(&mut svg, place);
        svg.text(place[0] + 17.0, place[1] + 10.0, Anchor::Start, "s", word);
    }
    if has(|one| drawn_gain(one).is_none()) {
        let word = "no value";
        let [x, y, width, height] = place_of(word);
        svg.rect(x, y, width, height, "empty", "");
        svg.text(x + 17.0, y + 10.0, Anchor::Start, "s", word);
    }
    Figure {
        id: "gains".into(),
        title: format!("Gain over {baseline}"),
        caption: format!(
            "Factor of improvement of the verdict's metric over {baseline}: above 1 is better. Colours are strongest from {STRONGEST} and \
             1/{STRONGEST} on. Hatched: the trials show no difference."
        ),
        svg,
        csv: data(gains),
    }
}

fn fill(gain: f64) -> [u8; 3] {
    let share = gain.ln().abs() / STRONGEST.ln();
    mix([0xf7, 0xf7, 0xf7], if gain >= 1.0 { GAIN } else { LOSS }, share)
}

/// The gain of a cell that has a colour.
fn drawn_gain(one: &Gained) -> Option<f64> {
    one.gain.filter(|gain| *gain > 0.0 && gain.is_finite())
}

fn draw_cell(svg: &mut Svg, [x, y, width, height]: [f64; 4], one: &Gained) {
    let place = [x + 1.0, y + 1.0, width - 2.0, height - 2.0];
    let Some(gain) = drawn_gain(one) else {
        svg.rect(place[0], place[1], place[2], place[3], "empty", "no value");
        return;
    };
    let colour = fill(gain);
    let hover = format!("{}, {}: {}", one.row(), one.candidate, three_digits(gain));
    let text = format!("{gain:.2}");
    let ground = text_width("s", &text) + 6.0;
    let has_room = ground <= width - 2.0;
    let class = if one.shown {
        svg.rect_with(place[0], place[1], place[2], place[3], &format!(r#"fill="{}""#, hex(colour)), &hover);
        let dark = colour.iter().map(|part| u32::from(*part)).sum::<u32>() < 400;
        if dark { "s on-dark" } else { "s on-light" }
    } else {
        svg.rect(place[0], place[1], place[2], place[3], "empty", &hover);
        hatch(svg, place);
        if has_room {
            // A ground for the number, so that no line runs through it.
            let (left, top) = (x + (width - ground) / 2.0, y + height / 2.0 - 7.0);
            svg.rect(left, top, ground, 14.0, "empty", "");
        }
        "s"
    };
    if has_room {
        svg.text(x + width / 2.0, y + height / 2.0 + 4.0, Anchor::Middle, class, &text);
    }
}

/// Slanted lines within a box.
fn hatch(svg: &mut Svg, [x, y, width, height]: [f64; 4]) {
    const APART: f64 = 7.0;
    let mut from = APART / 2.0;
    while from < width + height {
        // From the left or lower edge up to the upper or right one.
        let (x1, y1) = if from <= height { (x, y + from) } else { (x + from - height, y + height) };
        let (x2, y2) = if from <= width { (x + from, y) } else { (x + width, y + from - width) };
        svg.line(x1, y1, x2, y2, "hatch");
        from += APART;
    }
}

/// Every gain with its interval around 1. `None` where there are none.
fn intervals(gains: &[Gained], baseline: &str, wide: f64) -> Option<Figure> {
    const TOP: f64 = 10.0;
    let names = names(gains);
    let drawn: Vec<(&Gained, f64, (f64, f64), &String)> = gains
        .iter()
        .zip(&names)
        .filter_map(|(one, name)| Some((one, one.gain?, one.interval?, name)))
        .filter(|(_, gain, (low, _), _)| gain.is_finite() && *low > 0.0)
        .collect();
    if drawn.is_empty() {
        return None;
    }
    let candidates = distinct(drawn.iter().map(|(one, ..)| one.candidate.as_str()));
    let label = |name: &str, one: &Gained| {
        if candidates.len() > 1 { format!("{name}, {}", scheduler_name(&one.candidate)) } else { name.to_owned() }
    };
    let names: Vec<String> = drawn.iter().map(|(one, .., name)| label(name, one)).collect();
    let labels = Labels::new(&names, wide, NAMES, 0.0);
    let (left, right) = (labels.left, wide - 16.0);
    let ends = |(gain, (low, high)): (f64, (f64, f64))| [gain, low, if high.is_finite() { high } else { gain }];
    let all = || drawn.iter().flat_map(|(_, gain, interval, _)| ends((*gain, *interval)));
    let (low, high) = (all().fold(0.98, f64::min), all().fold(1.02, f64::max));
    let x = Scale::linear(low, high, left, right);
    let bottom = TOP + labels.heights(ROW);
    let mut svg = Svg::new(wide, bottom + 40.0);
    let ticks = number_ticks(&x, if wide < NARROW { 3 } else { 6 });
    for (value, text) in &ticks {
        svg.text(x.at(*value), bottom + 16.0, Anchor::Middle, "m", text);
    }
    let mut top = TOP;
    for (row, ((one, gain, (low, high), _), label)) in drawn.iter().zip(&names).enumerate() {
        let (begin, height) = labels.draw(&mut svg, row, top, ROW);
        top += labels.height(row, ROW);
        let y = begin + height / 2.0;
        // The axis' lines are in the row only: above it may be its name.
        for (value, _) in &ticks {
            svg.line(x.at(*value), begin, x.at(*value), begin + height, "grid");
        }
        svg.line(x.at(1.0), begin, x.at(1.0), begin + height, "one");
        let colour = series(candidates.iter().position(|other| *other == one.candidate).unwrap_or(0));
        svg.line(x.at(*low), y, x.at(*high), y, "bar");
        if !high.is_finite() {
            let end = x.at(*high);
            svg.polyline(&[(end - 5.0, y - 4.0), (end, y), (end - 5.0, y + 4.0)], "bar", "no upper end");
        }
        let hover = format!("{label}: {} [{}, {}]", three_digits(*gain), three_digits(*low), three_digits(*high));
        svg.circle(x.at(*gain), y, 4.0, &if one.shown { format!("c{colour}") } else { "hollow".to_owned() }, &hover);
    }
    let name = fitting(&scheduler_name(baseline), "m", wide - 250.0);
    let meaning = format!("gain over {name}, with its 95 % interval");
    svg.text((left + right) / 2.0, bottom + 33.0, Anchor::Middle, "m", &meaning);
    Some(Figure {
        id: "intervals".into(),
        title: format!("Gains over {baseline} and their intervals"),
        caption: "Factor of improvement with its 95 % interval; above 1 is better. A hollow point: the trials show no difference.".into(),
        svg,
        csv: data(gains),
    })
}

/// A text with its one number that is to be varied taken out, for each number in it: what is around it, and it.
fn numbers(text: &str) -> Vec<((String, String), f64)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            if let Ok(number) = text[at..at + digits].parse::<f64>() {
                found.push(((text[..at].to_owned(), text[at + digits..].to_owned()), number));
            }
            at += digits;
        } else {
            at += 1;
        }
    }
    found
}

/// The machine, and the text before and after a number.
type MachineFamily<'a> = (&'a str, (String, String));

/// Gains of cases on a machine that differ in one number only, in its order: at least three such numbers.
fn families(gains: &[Gained]) -> Vec<(MachineFamily<'_>, Vec<(f64, &Gained)>)> {
    const LEAST: usize = 3;
    let mut families: BTreeMap<MachineFamily<'_>, Vec<(f64, &Gained)>> = BTreeMap::new();
    for one in gains.iter().filter(|one| one.gain.is_some_and(|gain| gain > 0.0 && gain.is_finite())) {
        for (around, number) in numbers(&one.case) {
            families.entry((one.place.as_str(), around)).or_default().push((number, one));
        }
    }
    let distinct_numbers = |points: &[(f64, &Gained)]| {
        let mut numbers: Vec<f64> = points.iter().map(|(number, _)| *number).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        numbers.len()
    };
    let mut found: Vec<_> = families.into_iter().filter(|(_, points)| distinct_numbers(points) >= LEAST).collect();
    found.iter_mut().for_each(|(_, points)| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    found
}

/// What the number is called that is another one at each point.
fn name_of<'a>(points: &[(f64, &Gained)], varied: &'a [VariedNumber]) -> Option<&'a str> {
    let is_it = |one: &&VariedNumber| points.iter().all(|(number, _)| one.values.contains(number));
    varied.iter().find(is_it).map(|one| one.name.as_str())
}

/// How gains change with a number in the workload's text, where at least three workloads on a machine differ in one number only.
fn responses(gains: &[Gained], baseline: &str, varied: &[VariedNumber], wide: f64) -> Vec<Figure> {
    let drawn = |((place, (before, after)), points): (MachineFamily<'_>, Vec<(f64, &Gained)>)| {
        let name = name_of(&points, varied);
        response((place, &before, &after), name, &points, (baseline, wide))
    };
    families(gains).into_iter().map(drawn).collect()
}

/// For each number that is varied and each candidate, at which of its values the candidate is better than the baseline, worse, with the gains,
/// or not shown to be either.
pub fn answers(gains: &[Gained], baseline: &str, varied: &[VariedNumber]) -> Vec<String> {
    let mut answers = Vec::new();
    let families = families(gains);
    let several = families.iter().any(|((place, _), _)| *place != families[0].0.0);
    for ((place, (before, after)), points) in &families {
        let is_varied = |(number, _): &(f64, &Gained)| varied.iter().any(|one| one.values.contains(number));
        let (name, of_what) = match name_of(points, varied) {
            Some(name) => (format!("{name} "), String::new()),
            // Each of several axes has a part of the numbers.
            None if points.iter().all(is_varied) => (String::new(), format!(" for {before}…{after}")),
            None => continue,
        };
        let on = if several { format!(" on {place}") } else { String::new() };
        for candidate in distinct(points.iter().map(|(_, one)| one.candidate.as_str())) {
            let own: Vec<(f64, &str, f64)> = points
                .iter()
                .filter(|(_, one)| one.candidate == candidate)
                .map(|(number, one)| (*number, outcome(one), one.gain.unwrap_or(1.0)))
                .collect();
            let of = |wanted: &str| {
                let stretches = own.chunk_by(|a, b| a.1 == b.1).filter(|stretch| stretch[0].1 == wanted);
                let words: Vec<String> = stretches
                    .map(|stretch| match stretch {
                        [(only, ..)] => only.to_string(),
                        [(first, ..), .., (last, ..)] => format!("{first} to {last}"),
                        [] => String::new(),
                    })
                    .collect();
                let gains = || own.iter().filter(|(_, outcome, _)| *outcome == wanted).map(|(.., gain)| *gain);
                let ends = [gains().fold(f64::INFINITY, f64::min), gains().fold(0.0, f64::max)].map(three_digits);
                let size = match ends {
                    _ if wanted == OUTCOMES[2] => String::new(),
                    [least, most] if least == most => format!(" (gain {least})"),
                    [least, most] => format!(" (gain {least} to {most})"),
                };
                (!words.is_empty()).then(|| format!("{wanted} at {name}{}{size}", words.join(", ")))
            };
            let found: Vec<String> = OUTCOMES.into_iter().filter_map(of).collect();
            let (candidate, baseline) = (scheduler_name(&candidate), scheduler_name(baseline));
            answers.push(format!("{candidate} against {baseline}{of_what}{on}: {}", found.join("; ")));
        }
    }
    answers
}

/// What trials show of a candidate in a case.
const OUTCOMES: [&str; 3] = ["better", "worse", "no difference shown"];

fn outcome(one: &Gained) -> &'static str {
    match (one.shown, one.gain) {
        (true, Some(gain)) if gain > 1.0 => OUTCOMES[0],
        (true, Some(gain)) if gain < 1.0 => OUTCOMES[1],
        _ => OUTCOMES[2],
    }
}

/// Marks of the axis of a response: the numbers that were tried, if there is room for all.
fn marks(points: &[(f64, &Gained)], x: &Scale) -> Vec<(f64, String)> {
    let mut tried: Vec<(f64, String)> = points.iter().map(|(number, _)| (*number, number.to_string())).collect();
    tried.dedup();
    let half = |text: &str| text_width("m", text) / 2.0 + 3.0;
    let apart = |pair: &[(f64, String)]| x.at(pair[1].0) - x.at(pair[0].0) >= half(&pair[0].1) + half(&pair[1].1);
    if tried.windows(2).all(apart) { tried } else { number_ticks(x, 6) }
}

fn response(
    (place, before, after): (&str, &str, &str),
    name: Option<&str>,
    points: &[(f64, &Gained)],
    (baseline, wide): (&str, f64),
) -> Figure {
    const TOP: f64 = 14.0;
    const BOTTOM: f64 = TOP + 190.0;
    let candidates = distinct(points.iter().map(|(_, one)| one.candidate.as_str()));
    let (least, most) = (points[0].0, points[points.len() - 1].0);
    let ends = |one: &Gained| {
        let gain = one.gain.unwrap_or(1.0);
        let (low, high) = one.interval.unwrap_or((gain, gain));
        [gain, low, if high.is_finite() { high } else { gain }]
    };
    let all = || points.iter().flat_map(|(_, one)| ends(one));
    let y = Scale::linear(all().fold(0.98, f64::min), all().fold(1.02, f64::max), BOTTOM, TOP);
    let ticks = number_ticks(&y, 5);
    // Between the axis' name, which reads upwards, and a point at the left end.
    let left = 32.0 + ticks.iter().map(|(_, text)| text_width("m", text)).fold(0.0, f64::max);
    let right = wide - 20.0;
    let x = if least > 0.0 && most / least > 20.0 {
        Scale::logarithmic(least, most, left, right)
    } else {
        Scale::linear(least, most, left, right)
    };
    let mut svg = Svg::new(wide, BOTTOM + 44.0 + 16.0 * candidates.len() as f64);
    for (value, text) in ticks {
        svg.line(left, y.at(value), right, y.at(value), "grid");
        svg.text(left - 8.0, y.at(value) + 4.0, Anchor::End, "m", &text);
    }
    for (value, text) in marks(points, &x) {
        svg.line(x.at(value), BOTTOM, x.at(value), BOTTOM + 4.0, "axis");
        svg.text(x.at(value), BOTTOM + 17.0, Anchor::Middle, "m", &text);
    }
    svg.line(left, y.at(1.0), right, y.at(1.0), "one");
    for (at, candidate) in candidates.iter().enumerate() {
        let colour = series(at);
        let own: Vec<(f64, &Gained)> =
            points.iter().filter(|(_, one)| one.candidate == *candidate).map(|(n, one)| (*n, *one)).collect();
        let line = |end: usize| own.iter().map(move |(number, one)| (x.at(*number), y.at(ends(one)[end])));
        let area: Vec<(f64, f64)> = line(1).chain(line(2).collect::<Vec<_>>().into_iter().rev()).collect();
        svg.polygon(&area, &format!("area c{colour}"), candidate);
        svg.polyline(&line(0).collect::<Vec<_>>(), &format!("k k{colour}"), candidate);
        for ((number, one), (px, py)) in own.iter().zip(line(0)) {
            let class = if one.shown { format!("c{colour}") } else { "hollow".to_owned() };
            svg.circle(px, py, 4.0, &class, &format!("{candidate} at {number}: {}", three_digits(ends(one)[0])));
        }
        let below = BOTTOM + 52.0 + 16.0 * at as f64;
        svg.curve_key(left, below, colour);
        let name = fitting(&scheduler_name(candidate), "s", right - left - CURVE_KEY - 6.0);
        svg.text(left + CURVE_KEY + 6.0, below, Anchor::Start, "s", &name);
    }
    let varied = name.map_or_else(|| format!("… in {before}…{after} on {place}"), str::to_owned);
    svg.text((left + right) / 2.0, BOTTOM + 34.0, Anchor::Middle, "m", &fitting(&varied, "m", wide - 24.0));
    let over = fitting(&scheduler_name(baseline), "m", BOTTOM - TOP - 64.0);
    svg.text_upwards(14.0, (TOP + BOTTOM) / 2.0, "m", &format!("gain over {over}"));
    let of_points: Vec<Gained> = points.iter().map(|(_, one)| (*one).clone()).collect();
    Figure {
        id: format!("response-{}-{}", file_name(place), file_name(&format!("{before}x{after}"))),
        title: match name {
            Some(name) => format!("Gain over {baseline} by {name}, on {place}"),
            None => format!("Gain over {baseline} for {before}…{after} on {place}"),
        },
        caption: "Factor of improvement over a number in the workload, with its 95 % interval as an area. A hollow point: the trials \
                  show no difference."
            .into(),
        svg,
        csv: data(&of_points),
    }
}

#[cfg(test)]
mod tests;
