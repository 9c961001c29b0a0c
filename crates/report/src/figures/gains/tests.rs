//! Tests of gains: what their figures and their words show.

use super::*;

fn gained(case: &str, gain: f64, shown: bool) -> Gained {
    let (place, candidate) = ("genoa96".to_owned(), "cache-aware".to_owned());
    let interval = Some((gain - 0.05, gain + 0.05));
    Gained { place, case: case.to_owned(), candidate, gain: Some(gain), interval, shown }
}

#[test]
fn what_the_trials_do_not_show_is_hatched_and_hollow() {
    let hatched = |shown: bool| all(&[gained("pipes", 1.2, shown)], "eevdf", 360.0);
    let count =
        |figures: &[Figure], what: &str| figures.iter().map(|f| f.svg.inline("").matches(what).count()).sum::<usize>();
    let (shown, unclear) = (hatched(true), hatched(false));
    assert!(count(&shown, "class=\"hatch\"") == 0 && count(&unclear, "class=\"hatch\"") > 0);
    let says = |figures: &[Figure], word: &str| figures[0].svg.inline("").contains(&format!(">{word}</text>"));
    assert_eq!(
        ["better", "worse", "not shown by the trials", "no value"].map(|word| says(&shown, word)),
        [true, false, false, false]
    );
    assert!(says(&unclear, "not shown by the trials"), "the key explains what is drawn");
    assert_eq!((count(&shown, "class=\"hollow\""), count(&unclear, "class=\"hollow\"")), (0, 1));
}

#[test]
fn names_of_rows_differ_where_the_cases_do_also_in_a_column_of_a_paper() {
    let gains: Vec<Gained> = [4, 6, 8].map(|n| gained(&format!("verilator:-t{n},-C10000,-s200"), 1.1, true)).into();
    for wide in [360.0, 760.0] {
        for figure in all(&gains, "eevdf", wide).iter().take(2) {
            let drawn = figure.svg.inline("");
            assert!(
                [4, 6, 8].iter().all(|n| drawn.contains(&format!("t{n},-C10000,-s200</text>"))),
                "{}: {drawn}",
                figure.id
            );
        }
    }
}

/// A name of so many letters with signs where names of workloads and schedulers have them.
fn name(letters: usize, number: usize) -> String {
    let text = format!("hackbench:-T,-p,-f{number},-g{number},-l60000,--loops=WWWW_MMMM-{}", "wm".repeat(letters));
    text.chars().take(letters).collect()
}

#[test]
fn no_text_lies_on_a_mark_or_on_another_text_at_any_width_whatever_the_names() {
    for (letters, candidates) in [(5, 1), (5, 6), (18, 2), (33, 4), (60, 1), (60, 3)] {
        let of = |case: usize, candidate: usize| {
            let gain = 0.62 + 0.31 * case as f64 + 0.2 * candidate as f64;
            Gained {
                place: name(letters.min(12), 0),
                case: format!("{case}{}", name(letters - 1, case)),
                candidate: format!("{candidate}{}", name(letters - 1, candidate)),
                gain: Some(gain),
                interval: Some((gain * 0.9, if case == 2 { f64::INFINITY } else { gain * 1.1 })),
                shown: (case + candidate).is_multiple_of(2),
            }
        };
        let gains: Vec<Gained> =
            (0..4).flat_map(|case| (0..candidates).map(move |c| (case, c))).map(|(a, b)| of(a, b)).collect();
        for wide in [360.0, 510.0, 760.0] {
            let figures = all(&gains, &name(letters, 9), wide);
            assert_eq!(figures.len(), if letters <= 18 { 3 } else { 2 }, "with a response where one number differs");
            for figure in figures {
                let faults = super::super::overlap::faults(&figure.svg);
                assert!(faults.is_empty(), "{} {wide} wide, names of {letters}: {}", figure.id, faults.join("\n"));
            }
        }
    }
}

#[test]
fn a_response_is_drawn_where_three_workloads_differ_in_one_number() {
    let of = |numbers: &[u32]| {
        let gains: Vec<Gained> = numbers.iter().map(|n| gained(&format!("hackbench:-g{n},-l100"), 1.1, true)).collect();
        all(&gains, "eevdf", 760.0).into_iter().filter(|figure| figure.id.starts_with("response")).count()
    };
    assert_eq!((of(&[1, 2]), of(&[1, 2, 4])), (0, 1));
    let gains: Vec<Gained> = [2, 3, 4].map(|n| gained(&format!("hackbench:-g{n},-l100"), 1.1, true)).into();
    let drawn = all(&gains, "eevdf", 360.0)[2].svg.inline("");
    assert!([">2<", ">3<", ">4<"].iter().all(|mark| drawn.contains(mark)) && !drawn.contains(">2.5<"), "{drawn}");
}

#[test]
fn a_number_that_a_study_varies_has_its_name_and_an_answer() {
    let of = |number: u32, gain: f64, shown: bool| gained(&format!("verilator:-t{number},-C1000"), gain, shown);
    let gains = [of(8, 0.8, true), of(2, 1.2, true), of(4, 1.1, true), of(6, 1.0, false)];
    let varied = [
        VariedNumber { name: "clients".into(), values: vec![1.0, 2.0] },
        VariedNumber { name: "threads".into(), values: vec![2.0, 4.0, 6.0, 8.0] },
    ];
    assert_eq!(
        answers(&gains, "eevdf", &varied),
        [
            "cache-aware against eevdf: better at threads 2 to 4 (gain 1.1 to 1.2); worse at threads 8 (gain 0.8); no difference \
             shown at threads 6"
        ]
    );
    let axes = [("few", vec![2.0, 4.0]), ("many", vec![6.0, 8.0])];
    let parts = axes.map(|(name, values)| VariedNumber { name: name.into(), values });
    assert_eq!(
        answers(&gains, "eevdf", &parts),
        [
            "cache-aware against eevdf for verilator:-t…,-C1000: better at 2 to 4 (gain 1.1 to 1.2); worse at 8 (gain 0.8); no \
             difference shown at 6"
        ]
    );
    assert_eq!(answers(&gains, "eevdf", &varied[..1]), Vec::<String>::new());
    let response = all_over(&gains, "eevdf", &varied, 360.0).pop().unwrap();
    assert_eq!(response.title, "Gain over eevdf by threads, on genoa96");
    let drawn = response.svg.inline("");
    assert!(drawn.contains(">threads</text>") && !drawn.contains("verilator"), "{drawn}");
}

#[test]
fn the_numbers_of_a_figure_are_in_its_data() {
    let figures = all(&[gained("pipes", 1.25, true)], "eevdf", 760.0);
    assert!(figures.iter().all(|figure| figure.csv.contains("genoa96,pipes,cache-aware,1.25,1.2,1.3,true")));
}
