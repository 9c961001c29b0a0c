//! How fast the exact level is: line touches per second of one host thread, on the specification's mix
//! (`docs/spec/memory-model.md` section 3.3: about 4 % L1 misses and 1 % L2 misses), with and without lines that all
//! cores write.
//!
//! Prints one JSON document. `--only NAME` selects the run of that name, or runs whose name contains the text, `--repeat N` repeats each,
//! `--touches N` sets the number of touches. `--native N` simulates nothing: it touches a stream's lines in real memory
//! N times over, for another tool to watch; with `--misses` it says what the exact level counts on that stream.

use std::process::ExitCode;

use serde::Serialize;
use warmcore_memory::exact::address_trace::{Access, Record};
use warmcore_memory::exact::cache::SetIndex;
use warmcore_memory::exact::lanes::InstructionSet;
use warmcore_memory::exact::stream::{BLOCK, Stream, StreamClass};
use warmcore_memory::exact::{HistoryLevel, HistorySpec, Options, Replay, Simulation, TaskSpec};
use warmcore_memory::{Class, Profile, Sharing};
use warmcore_topology::{CpuId, Machine, from_toml};

#[derive(Serialize)]
struct Measurement {
    name: String,
    cores: usize,
    quantum_ns: u64,
    instruction_set: String,
    touches: u64,
    /// CPU time of the one thread that simulates.
    seconds: Vec<f64>,
    million_touches_per_s: f64,
    l1_misses_per_1000: f64,
    l2_misses_per_1000: f64,
    cross_transactions_per_1000: f64,
}

/// Caches of the specification's measurement: 48 KiB, 2 MiB, and for 16 cores 60 MiB or what is given.
fn machine(cores: usize, llc: &str) -> Result<Machine, String> {
    let shape = if cores == 1 { "1s1n1l1c1t".to_owned() } else { format!("{}s1n1l16c1t", cores.div_ceil(16)) };
    let cache = |level: u32, size: &str, ways: u32| {
        format!("[[cache]]\nlevel = {level}\nsize = \"{size}\"\nways = {ways}\norigin = \"given\"\nlatency_ns = 2.0\n")
    };
    let caches = cache(1, "48KiB", 12) + &cache(2, "2MiB", 16) + &cache(3, llc, 16);
    from_toml(&format!("name = \"bench\"\n[topology]\norigin = \"given\"\nshape = \"{shape}\"\n{caches}"))
        .map_err(|error| error.to_string())
}

/// The mix; `shared` is the share of touches that go to 1 MiB which all write, a quarter of the time.
fn profile(shared: f64) -> Profile {
    let mut classes = vec![
        Class::new("l1", 20 << 10, 0.1 * (0.958 - shared), 0.3),
        Class::new("l2", 160 << 10, 0.1 * 0.032, 0.3),
        Class::new("llc", 3 << 20, 0.1 * 0.009, 0.3),
        Class::new("memory", 256 << 20, 0.1 * 0.001, 0.3),
    ];
    if shared > 0.0 {
        classes.push(Class { sharing: Sharing::Process, ..Class::new("shared", 1 << 20, 0.1 * shared, 0.25) });
    }
    Profile { origin: "docs/spec/memory-model.md section 3.3".into(), ..Profile::new("mix", 0.4, 4.0, classes) }
}

/// CPU time of this thread so far: what else runs on the host takes caches and memory from it, but no time.
fn cpu_seconds() -> Result<f64, String> {
    const PATH: &str = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    let ns = text.split_ascii_whitespace().next().and_then(|field| field.parse::<u64>().ok());
    ns.map(|ns| ns as f64 * 1e-9).ok_or_else(|| format!("{PATH} has no time on CPU"))
}

struct Run {
    cores: usize,
    shared: f64,
    /// Private lines take the directory's path too.
    all_coherent: bool,
    quantum_ns: u64,
    instruction_set: InstructionSet,
    history: Option<HistoryLevel>,
}

fn measure(name: &str, run: &Run, touches: u64, repeat: usize) -> Result<Measurement, String> {
    let machine = machine(run.cores, "60MiB")?;
    let options = Options {
        quantum_ns: run.quantum_ns,
        epoch_ns: 4 * run.quantum_ns,
        follow_migrations: run.all_coherent,
        instruction_set: run.instruction_set,
        ..Options::default()
    };
    let spec = TaskSpec { profile: profile(run.shared), process: 0, data_group: None };
    let mut simulation =
        Simulation::new(&machine, options, vec![spec; run.cores]).map_err(|error| error.to_string())?;
    if let Some(level) = run.history {
        simulation.record_sets(HistorySpec { level, window: 300 });
    }
    for cpu in machine.cpus().take(run.cores) {
        simulation.place(cpu.index(), Some(cpu)).map_err(|error| error.to_string())?;
    }
    // At least 40,000 touches per core go by first: host caches and simulated L1s and L2s are warm then.
    let run_touches = |simulation: &mut Simulation, touches: u64| {
        let target = simulation.simulated_touches() + touches;
        while simulation.simulated_touches() < target {
            simulation.run_for(run.quantum_ns);
        }
    };
    run_touches(&mut simulation, (touches / 2).max(200_000 * run.cores as u64));
    let total = |simulation: &Simulation| {
        let all = (0..run.cores).map(|task| simulation.counters(task).total());
        all.reduce(|sum, counters| sum.plus(&counters)).unwrap_or_default()
    };
    let before = (total(&simulation), simulation.simulated_touches());
    let mut seconds = Vec::new();
    for _ in 0..repeat {
        let started = cpu_seconds()?;
        run_touches(&mut simulation, touches);
        seconds.push(cpu_seconds()? - started);
    }
    let counters = total(&simulation).since(&before.0);
    let done = simulation.simulated_touches() - before.1;
    let per_1000 = |events: u64| 1e3 * events as f64 / done as f64;
    let mut sorted = seconds.clone();
    sorted.sort_by(f64::total_cmp);
    Ok(Measurement {
        name: name.to_owned(),
        cores: run.cores,
        quantum_ns: run.quantum_ns,
        instruction_set: format!("{:?}", run.instruction_set),
        touches: done / repeat as u64,
        million_touches_per_s: done as f64 / repeat as f64 / sorted[sorted.len() / 2] / 1e6,
        seconds,
        l1_misses_per_1000: per_1000(counters.l1_misses),
        l2_misses_per_1000: per_1000(counters.l2_misses()),
        cross_transactions_per_1000: per_1000(counters.cross_reads() + counters.cross_rfos()),
    })
}

fn runs() -> Vec<(String, Run)> {
    let mut runs = Vec::new();
    let best = InstructionSet::detect();
    let quantum = |cores: usize| if cores == 1 { 100_000 } else { 80_000 };
    for cores in [1, 16, 64] {
        for (name, shared) in [("private", 0.0), ("shared-0.4%", 0.004), ("shared-2%", 0.02)] {
            let quantum_ns = quantum(cores);
            let run = Run { cores, shared, all_coherent: false, quantum_ns, instruction_set: best, history: None };
            runs.push((format!("{name}-{cores}"), run));
        }
    }
    for instruction_set in InstructionSet::available().into_iter().filter(|set| *set != best) {
        for cores in [1, 64] {
            let run = Run {
                cores,
                shared: 0.004,
                all_coherent: false,
                quantum_ns: quantum(cores),
                instruction_set,
                history: None,
            };
            runs.push((format!("shared-0.4%-{cores}-{instruction_set:?}"), run));
        }
    }
    // The shortest quantum: about 300 touches per visit of a core.
    let run =
        Run { cores: 64, shared: 0.004, all_coherent: false, quantum_ns: 1_000, instruction_set: best, history: None };
    runs.push(("shared-0.4%-64-quantum-1us".to_owned(), run));
    let run = |all_coherent, history| Run {
        cores: 1,
        shared: 0.004,
        all_coherent,
        quantum_ns: 100_000,
        instruction_set: best,
        history,
    };
    runs.push(("all-in-the-directory-1".to_owned(), run(true, None)));
    for (name, level) in [("l1", HistoryLevel::L1), ("l2", HistoryLevel::L2), ("llc", HistoryLevel::Llc)] {
        runs.push((format!("sets-of-{name}-recorded-1"), run(false, Some(level))));
    }
    runs
}

/// Lines of a stream like the mix's, for the tool beside.
fn native_lines(count: usize) -> Vec<u32> {
    let sizes = [(20_u32 << 10, 0.958), (160 << 10, 0.032), (3 << 20, 0.009), (64 << 20, 0.001)];
    let mut first = 0;
    let mut classes = Vec::new();
    for (bytes, rate) in sizes {
        classes.push(StreamClass { first, lines: bytes / 64, rate, write_fraction: 0.3, scan: false });
        first += bytes / 64;
    }
    let mut stream = Stream::new(1, &classes);
    let (mut lines, mut outcomes) = ([0; BLOCK], [0; BLOCK]);
    let mut all = Vec::with_capacity(count);
    while all.len() < count {
        stream.next(BLOCK, &mut lines, &mut outcomes);
        all.extend_from_slice(&lines);
    }
    all
}

const NATIVE_TOUCHES: usize = 2_000_000;

/// Reads the stream's lines in real memory `passes` times.
fn native(passes: usize) {
    let lines = native_lines(NATIVE_TOUCHES);
    let last = lines.iter().max().map_or(0, |line| *line as usize);
    let memory = vec![1_u8; (last + 1) * 64];
    let mut sum = 0_u64;
    for _ in 0..passes {
        for line in &lines {
            sum += u64::from(memory[*line as usize * 64]);
        }
        sum = std::hint::black_box(sum);
    }
    println!("{sum}");
}

/// What the exact level counts on one pass over that stream, the passes before having warmed the caches.
fn native_misses(passes: usize) -> Result<(), String> {
    // The LLC does not matter here, but its sets must be a power of two.
    let machine = machine(1, "64MiB")?;
    let options = Options { index: SetIndex::LowBits, ..Options::default() };
    let mut replay = Replay::new(&machine, &options, &[CpuId(0)], 1 << 30).map_err(|error| error.to_string())?;
    let lines = native_lines(NATIVE_TOUCHES);
    for _ in 0..passes {
        for line in &lines {
            let record = Record { thread: 0, access: Access::Read, address: u64::from(*line) * 64, size: 1 };
            replay.access(record).map_err(|error| error.to_string())?;
        }
    }
    let events = replay.counters()[0].events;
    println!(
        "{{\"touches\": {}, \"l1_misses\": {}, \"l2_misses\": {}}}",
        events.touches,
        events.l1_misses,
        events.l2_misses()
    );
    Ok(())
}

fn report() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let value_of = |flag: &str| {
        arguments.iter().position(|argument| argument == flag).and_then(|at| arguments.get(at + 1)).cloned()
    };
    let number = |flag: &str, default: u64| {
        value_of(flag).map_or(Ok(default), |text| text.parse().map_err(|_| format!("{flag} takes a number")))
    };
    if let Some(passes) = value_of("--native") {
        let passes = passes.parse().map_err(|_| "--native takes a number")?;
        if arguments.iter().any(|argument| argument == "--misses") {
            return native_misses(passes);
        }
        native(passes);
        return Ok(());
    }
    let only = value_of("--only").unwrap_or_default();
    let (repeat, touches) = (number("--repeat", 3)? as usize, number("--touches", 40_000_000)?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| error.to_string())?;
    let mut measurements = Vec::new();
    let exact = runs().iter().any(|(name, _)| *name == only);
    let chosen = |name: &str| if exact { name == only } else { name.contains(&only) };
    for (name, run) in runs().into_iter().filter(|(name, _)| chosen(name)) {
        measurements.push(pool.install(|| measure(&name, &run, touches, repeat.max(1)))?);
    }
    println!("{}", serde_json::to_string_pretty(&measurements).map_err(|error| error.to_string())?);
    Ok(())
}

fn main() -> ExitCode {
    match report() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("exact: {message}");
            ExitCode::FAILURE
        }
    }
}
