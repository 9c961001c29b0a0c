//! Reading and writing of backgrounds: files of their own, and the table `[background]` of a machine file. The format is described in
//! `machines/README.md`.

use std::fmt::Write as _;

use serde::Deserialize;
use toml::Spanned;

use crate::background::{Background, Interrupt, KernelThread, ThreadPlace, Wakes};
use crate::toml_read::{given, line_of, optional_origin};
use crate::toml_write::quote;
use crate::units::{decimal, scaled};
use crate::{Basis, Error, Location, Origin, Result, parse_cpu_list};

const FORMAT: &str = "background TOML";
/// Version of the format of files of their own.
const SCHEMA: &str = "warmcore-background-1";

/// `[background]` of a machine file, and a file of its own but for its schema.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawBackground {
    schema: Option<String>,
    name: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    launchers: bool,
    #[serde(default)]
    thread: Vec<Spanned<RawThread>>,
    #[serde(default)]
    interrupt: Vec<Spanned<RawInterrupt>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThread {
    name: String,
    on: String,
    #[serde(default)]
    nice: i8,
    interval_us: Option<Vec<f64>>,
    rate_per_s: Option<f64>,
    #[serde(default)]
    after_exit: bool,
    #[serde(default)]
    at_tick: bool,
    #[serde(default)]
    deferrable: bool,
    run_us: Vec<f64>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInterrupt {
    name: String,
    on: String,
    interval_us: Option<Vec<f64>>,
    rate_per_s: Option<f64>,
    run_us: Vec<f64>,
    #[serde(default, deserialize_with = "optional_origin")]
    origin: Option<Origin>,
}

/// Reads a file that describes kernel threads and interrupts.
///
/// # Errors
/// [`Error::Invalid`] with the line.
pub fn background_from_toml(text: &str) -> Result<Background> {
    let raw: RawBackground = toml::from_str(text).map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| line_of(text, span.start));
        Error::invalid(Location { format: FORMAT, path: None, line }, error.message().trim())
    })?;
    if raw.schema.as_deref() != Some(SCHEMA) {
        return Err(Error::invalid(Location::format(FORMAT), format!("its `schema` must be \"{SCHEMA}\"")));
    }
    raw.read(|position| Location::line(FORMAT, line_of(text, position)))
}

impl RawBackground {
    /// The background; `place` turns a position in the text into a place for messages.
    pub(crate) fn read(self, place: impl Fn(usize) -> Location) -> Result<Background> {
        let positions = self.thread.iter().map(|thread| thread.span().start);
        let positions: Vec<usize> = positions.chain(self.interrupt.iter().map(|own| own.span().start)).collect();
        let invalid = |index: usize, reason| Error::invalid(place(positions[index]), reason);
        let first_interrupt = self.thread.len();
        let threads = self.thread.into_iter().enumerate();
        let threads = threads.map(|(index, raw)| raw.into_inner().read().map_err(|reason| invalid(index, reason)));
        let interrupts = self
            .interrupt
            .into_iter()
            .enumerate()
            .map(|(index, raw)| raw.into_inner().read().map_err(|reason| invalid(first_interrupt + index, reason)));
        let background = Background {
            name: self.name,
            summary: self.summary,
            launchers: self.launchers,
            threads: threads.collect::<Result<_>>()?,
            interrupts: interrupts.collect::<Result<_>>()?,
        };
        background.check().map_err(|(index, reason)| invalid(index, reason))?;
        Ok(background)
    }
}

impl RawThread {
    fn read(self) -> Result<KernelThread, String> {
        let fail = |reason: String| format!("thread `{}`: {reason}", self.name);
        let place = place(&self.on).map_err(fail)?;
        let wakes = wakes(self.interval_us.as_deref(), self.rate_per_s).map_err(fail)?;
        let run_ns = times("run_us", &self.run_us).map_err(fail)?;
        explained(self.origin.as_ref()).map_err(fail)?;
        let Self { name, nice, after_exit, at_tick, deferrable, origin, .. } = self;
        let origin = origin.unwrap_or_else(given);
        Ok(KernelThread { name, place, nice, wakes, after_exit, at_tick, deferrable, run_ns, origin })
    }
}

impl RawInterrupt {
    fn read(self) -> Result<Interrupt, String> {
        let fail = |reason: String| format!("interrupt `{}`: {reason}", self.name);
        let place = place(&self.on).map_err(fail)?;
        let arrives = wakes(self.interval_us.as_deref(), self.rate_per_s).map_err(fail)?;
        let run_ns = times("run_us", &self.run_us).map_err(fail)?;
        explained(self.origin.as_ref()).map_err(fail)?;
        let Self { name, origin, .. } = self;
        Ok(Interrupt { name, place, arrives, run_ns, origin: origin.unwrap_or_else(given) })
    }
}

fn place(on: &str) -> Result<ThreadPlace, String> {
    Ok(match on {
        "each-cpu" => ThreadPlace::EachCpu,
        "any" => ThreadPlace::AnyCpu,
        list => ThreadPlace::Cpus(parse_cpu_list(list).map_err(|error| {
            format!("`on = \"{list}\"` is neither \"each-cpu\", \"any\" nor a list of CPUs ({error})")
        })?),
    })
}

fn times(key: &str, values: &[f64]) -> Result<Vec<u64>, String> {
    let time = |value: &f64| {
        scaled(*value, 3)
            .ok_or_else(|| format!("`{key}` has {value}, not microseconds above 0 with at most three decimals"))
    };
    values.iter().map(time).collect()
}

fn wakes(interval_us: Option<&[f64]>, rate_per_s: Option<f64>) -> Result<Wakes, String> {
    match (interval_us, rate_per_s) {
        (Some(values), None) => Ok(Wakes::Intervals(times("interval_us", values)?)),
        // Above 0 and finite; what is too seldom is refused as too long an interval.
        (None, Some(rate)) if rate > 0.0 && rate <= 1e6 => {
            Ok(Wakes::Random { mean_ns: ((1e9 / rate).round() as u64).max(1) })
        }
        (None, Some(rate)) => Err(format!("`rate_per_s = {rate}` is not above 0 and at most 1000000")),
        _ => Err("give one of `interval_us` and `rate_per_s`".to_owned()),
    }
}

fn explained(origin: Option<&Origin>) -> Result<(), String> {
    match origin.and_then(|origin| origin.tags.first()) {
        Some(tag) => Err(format!(
            "origin `{tag}` is not explained; begin with `measured:` or `assumed:` and say what it rests on"
        )),
        None => Ok(()),
    }
}

/// Prints `[background]` of a machine file; nothing where there is none.
pub(crate) fn background_table(background: &Background) -> String {
    if background.is_empty() {
        return String::new();
    }
    let mut text = format!("\n[background]\nname = {}\n", quote(&background.name));
    if !background.summary.is_empty() {
        let _ = writeln!(text, "summary = {}", quote(&background.summary));
    }
    if background.launchers {
        text.push_str("launchers = true\n");
    }
    for thread in &background.threads {
        text.push_str(&thread_table(thread));
    }
    for interrupt in &background.interrupts {
        text.push_str(&interrupt_table(interrupt));
    }
    text
}

fn thread_table(thread: &KernelThread) -> String {
    let mut text = format!("\n[[background.thread]]\n{}", identity_lines(&thread.name, &thread.place));
    if thread.nice != 0 {
        let _ = writeln!(text, "nice = {}", thread.nice);
    }
    text.push_str(&wakes_line(&thread.wakes));
    if thread.after_exit {
        text.push_str("after_exit = true\n");
    }
    if thread.at_tick {
        text.push_str("at_tick = true\n");
    }
    if thread.deferrable {
        text.push_str("deferrable = true\n");
    }
    text.push_str(&run_lines(&thread.run_ns, &thread.origin));
    text
}

fn interrupt_table(interrupt: &Interrupt) -> String {
    let Interrupt { name, place, arrives, run_ns, origin } = interrupt;
    let (identity, wakes, runs) = (identity_lines(name, place), wakes_line(arrives), run_lines(run_ns, origin));
    format!("\n[[background.interrupt]]\n{identity}{wakes}{runs}")
}

fn identity_lines(name: &str, place: &ThreadPlace) -> String {
    format!("name = {}\non = \"{place}\"\n", quote(name))
}

fn wakes_line(wakes: &Wakes) -> String {
    match wakes {
        Wakes::Intervals(values) => format!("interval_us = {}\n", in_us(values)),
        // Shortest decimals that are read back as the same number, so the mean is, too.
        Wakes::Random { mean_ns } => format!("rate_per_s = {:?}\n", 1e9 / *mean_ns as f64),
    }
}

fn run_lines(run_ns: &[u64], origin: &Origin) -> String {
    let mut text = format!("run_us = {}\n", in_us(run_ns));
    if *origin != Origin::new(Basis::Given, "") {
        let _ = writeln!(text, "origin = {}", quote(&origin.to_string()));
    }
    text
}

fn in_us(values: &[u64]) -> String {
    let values: Vec<String> = values.iter().map(|value| decimal(*value, 3)).collect();
    format!("[{}]", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backgrounds, from_toml, resolve, to_toml};

    const TEXT: &str = r#"
schema = "warmcore-background-1"
name = "two"
summary = "a thread of each kind"

[[thread]]
name = "kworker"
on = "each-cpu"
interval_us = [1000000]
at_tick = true
deferrable = true
run_us = [10, 12.5, 30]
origin = "measured: by hand"

[[thread]]
name = "kworker/u"
on = "0-1"
nice = -20
rate_per_s = 7.3
run_us = [25]

[[thread]]
name = "rcu_preempt"
on = "each-cpu"
interval_us = [4000, 8000]
after_exit = true
run_us = [9]

[[interrupt]]
name = "virtio1-req.0"
on = "any"
interval_us = [100, 300]
run_us = [4.5]

[[interrupt]]
name = "function-call"
on = "each-cpu"
rate_per_s = 30.0
run_us = [1]
origin = "measured: by hand"
"#;

    fn refusal(from: &str, to: &str) -> String {
        assert!(TEXT.contains(from), "{from}");
        background_from_toml(&TEXT.replacen(from, to, 1)).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_read_and_lives_on_in_the_machines_file() {
        let background = background_from_toml(TEXT).unwrap();
        assert_eq!(background.threads[0].run_ns, [10_000, 12_500, 30_000]);
        assert_eq!(background.threads[0].mean_run_ns(), 17_500);
        assert_eq!(background.threads[1].wakes, Wakes::Random { mean_ns: 136_986_301 });
        let [device, calls] = &background.interrupts[..] else { panic!("{:?}", background.interrupts) };
        assert_eq!(
            (&device.place, device.arrives.mean_ns(), device.mean_run_ns()),
            (&ThreadPlace::AnyCpu, 200_000, 4_500)
        );
        assert_eq!((&calls.place, &calls.arrives), (&ThreadPlace::EachCpu, &Wakes::Random { mean_ns: 33_333_333 }));
        let machine = resolve("1s1n1l2c1t").unwrap().with_background(background.clone()).unwrap();
        let again = from_toml(&to_toml(&machine)).unwrap();
        assert_eq!(*again.background(), background);
        assert_eq!(again, machine);
    }

    #[test]
    fn launchers_alone_are_a_background_that_lives_on_in_the_machines_file() {
        let launchers = Background::named("launchers").unwrap();
        assert!(launchers.launchers && launchers.threads.is_empty() && !launchers.is_empty());
        let machine = resolve("1s1n1l2c1t").unwrap().with_background(launchers.clone()).unwrap();
        assert_eq!(*from_toml(&to_toml(&machine)).unwrap().background(), launchers);
        let text = "schema = \"warmcore-background-1\"\nname = \"mine\"\nlaunchers = \"yes\"\n";
        let error = background_from_toml(text).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("expected a boolean"), "{error}");
    }

    #[test]
    fn shipped_backgrounds_can_be_read_and_say_what_they_rest_on() {
        for summary in backgrounds().unwrap() {
            let background = Background::named(&summary.name).unwrap();
            assert_eq!(background.name, summary.name, "as its file is called");
            assert!(!background.summary.is_empty(), "{}", summary.name);
            for thread in &background.threads {
                assert_ne!(thread.origin.basis, Basis::Given, "{} of {}", thread.name, summary.name);
            }
            for interrupt in &background.interrupts {
                assert_ne!(interrupt.origin.basis, Basis::Given, "{} of {}", interrupt.name, summary.name);
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_line_and_the_thread() {
        let error = refusal("[10, 12.5, 30]", "[]");
        assert!(error.contains("line 6") && error.contains("`kworker`: its list of runs is empty"), "{error}");
        assert!(refusal("[10, 12.5, 30]", "[-3]").contains("`run_us` has -3, not microseconds above 0"));
        assert!(refusal("[10, 12.5, 30]", "[0]").contains("a run of 0 ns is not"));
        assert!(refusal("[10, 12.5, 30]", "[2e6]").contains("a run of 2000000000 ns is not"));
        assert!(refusal("[1000000]", "[nan]").contains("`interval_us` has NaN"));
        assert!(refusal("[1000000]", "[]").contains("its list of intervals is empty"));
        assert!(refusal("[1000000]", "[3700000000]").contains("an interval of 3700000000000 ns is not 1 to 3600"));
        assert!(refusal("[1000000]", "[15]").contains("would never be done"));
        assert!(
            refusal("rate_per_s = 7.3", "rate_per_s = -1").contains("`kworker/u`: `rate_per_s = -1` is not above 0")
        );
        assert!(refusal("rate_per_s = 7.3", "").contains("give one of `interval_us` and `rate_per_s`"));
        assert!(
            refusal("rate_per_s = 7.3", "rate_per_s = 7.3\nafter_exit = true")
                .contains("`after_exit` needs `interval_us`")
        );
        assert!(refusal("nice = -20", "nice = -21").contains("nice -21 is not -20 to 19"));
        assert!(refusal("on = \"0-1\"", "on = \"each\"").contains("neither \"each-cpu\", \"any\" nor a list"));
        assert!(refusal("run_us = [25]", "runs_us = [25]").contains("runs_us"));
        assert!(refusal("\"measured: by hand\"", "\"S7: a table\"").contains("origin `S7` is not explained"));
        assert!(refusal("background-1", "background-9").contains("warmcore-background-1"));
        assert!(refusal("\"kworker\"", "\"a name too long to be one\"").contains("1 to 15 bytes"));
    }

    #[test]
    fn interrupts_that_cannot_be_are_refused_with_the_line_and_their_name() {
        let error = refusal("run_us = [4.5]", "run_us = []");
        assert!(
            error.contains("line 29") && error.contains("interrupt `virtio1-req.0`: its list of runs is empty"),
            "{error}"
        );
        assert!(
            refusal("run_us = [4.5]", "run_us = [-1]").contains("`virtio1-req.0`: `run_us` has -1, not microseconds")
        );
        assert!(refusal("run_us = [4.5]", "run_us = [200]").contains("it runs 200000 ns every 200000 ns on average"));
        assert!(refusal("[100, 300]", "[100, 0]").contains("`virtio1-req.0`: an interval of 0 ns is not 1 to"));
        assert!(
            refusal("rate_per_s = 30.0", "").contains("`function-call`: give one of `interval_us` and `rate_per_s`")
        );
        assert!(refusal("rate_per_s = 30.0", "rate_per_s = inf").contains("`rate_per_s = inf` is not above 0"));
        assert!(
            refusal("on = \"any\"", "on = \"some\"").contains("interrupt `virtio1-req.0`: `on = \"some\"` is neither")
        );
        assert!(refusal("\"virtio1-req.0\"", "\"\"").contains("interrupt ``: a name has 1 to 63 bytes"));
        // What a thread has and an interrupt has not: it comes when it comes.
        assert!(refusal("interval_us = [100, 300]", "interval_us = [100]\ndeferrable = true").contains("deferrable"));
    }

    #[test]
    fn an_interrupt_for_a_cpu_that_is_not_there_is_refused() {
        let text = TEXT.replace("on = \"0-1\"", "on = \"any\"").replace("on = \"each-cpu\"\nrate", "on = \"1\"\nrate");
        let background = background_from_toml(&text).unwrap();
        let error = resolve("1s1n1l1c1t").unwrap().with_background(background).unwrap_err().to_string();
        assert!(error.contains("interrupt `function-call` is to run on CPU 1, which is not there"), "{error}");
    }

    #[test]
    fn a_background_for_cpus_that_are_not_there_is_refused() {
        let background = background_from_toml(TEXT).unwrap();
        let error = resolve("1s1n1l1c1t").unwrap().with_background(background).unwrap_err().to_string();
        assert!(error.contains("thread `kworker/u` is to run on CPU 1, which is not there"), "{error}");
        assert!(error.contains("its online CPUs are 0;"), "{error}");
    }

    #[test]
    fn an_unknown_name_gets_the_nearest() {
        let error = Background::named("nonne").unwrap_err().to_string();
        assert_eq!(error, "unknown background `nonne`; did you mean `none`?");
        assert!(Background::named("none").unwrap().is_empty());
    }
}
