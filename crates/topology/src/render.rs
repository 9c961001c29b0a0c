//! Drawing a machine as text, at most 120 columns wide or as wide as a terminal.
//!
//! Whatever repeats is drawn once: LLCs of a node that are alike become a first box and a count, nodes and sockets
//! that are alike become one line that names their CPUs.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::build::{DISTANCES, PROCESSOR, STATED_RECLAIM_DISTANCE};
use crate::cache_entries::cache_entries;
use crate::template::CacheScope;
use crate::units::{decimal, format_size_rounded};
use crate::{
    Bandwidth, Cache, CoreKind, CpuSet, Inclusion, LlcId, Machine, NodeId, Origin, SocketId, Ways, format_cpu_list,
};

/// Columns of the page where nothing narrower is asked for.
const WIDTH: usize = 120;
/// Least columns: a box and its indentation.
const LEAST_WIDTH: usize = BOX_INDENT + BOX_WIDTH + 4;
/// Columns before a box.
const BOX_INDENT: usize = 4;
/// Columns of the text in a box.
const BOX_WIDTH: usize = 34;
/// A blank at which lines are not broken.
const NO_BREAK: &str = "\u{a0}";
/// Up to this many nodes the distances are drawn as a matrix.
const MATRIX_NODES: usize = 24;

/// Draws a machine: a header, its sockets, nodes and LLCs, its caches, distances and costs with their origins.
pub fn render(machine: &Machine) -> String {
    render_within(machine, WIDTH)
}

/// The same in lines of at most so many columns, from 42 on; more than 120 are not used.
pub fn render_within(machine: &Machine, columns: usize) -> String {
    let mut text = Page { text: String::new(), width: columns.clamp(LEAST_WIDTH, WIDTH) };
    header(machine, &mut text);
    for group in alike(machine.sockets().collect(), |socket| socket_signature(machine, *socket)) {
        sockets(machine, &group, &mut text);
    }
    for node in machine.nodes().filter(|node| machine.cpus_of_node(*node).is_empty()) {
        let _ = writeln!(text, "\nnode {}{}, no CPUs", machine.node_os_index(node), memory_of(machine, node));
    }
    if !machine.offline_cpus().is_empty() {
        let offline = format_cpu_list(machine.offline_cpus().iter().copied());
        wrapped(&mut text, "\noffline CPUs", &offline);
    }
    caches(machine, &mut text);
    distances(machine, &mut text);
    relations(machine, &mut text);
    figures(machine, &mut text);
    sources(machine, &mut text);
    for note in machine.notes() {
        wrapped(&mut text, "\nnote", note);
    }
    text.text
}

/// What is drawn.
struct Page {
    text: String,
    /// Most columns of a line.
    width: usize,
}

impl std::fmt::Write for Page {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text.push_str(text);
        Ok(())
    }
}

impl Page {
    /// A line that is cut where it is too long.
    fn cut(&mut self, line: &str) {
        let line = shorten(line, self.width);
        let _ = writeln!(self, "{line}");
    }

    /// A row of a table, with an origin as its last cell: below the others where they leave no room on a narrow page.
    fn row(&mut self, cells: &str, origin: &str) {
        let line = format!("{cells}{origin}");
        if line.chars().count() <= self.width || self.width == WIDTH {
            return self.cut(line.trim_end());
        }
        self.cut(cells.trim_end());
        for line in wrap(origin, self.width - ORIGIN_INDENT) {
            let _ = writeln!(self, "{:ORIGIN_INDENT$}{line}", "");
        }
    }
}

/// Columns before an origin that has a line of its own.
const ORIGIN_INDENT: usize = 6;

/// `2 sockets`, `1 core`.
fn count(number: usize, one: &str) -> String {
    let plural = match one {
        "LLC" => "LLCs".to_owned(),
        other => format!("{other}s"),
    };
    if number == 1 { format!("1 {one}") } else { format!("{number} {plural}") }
}

fn header(machine: &Machine, text: &mut Page) {
    let per = |number: usize, of: usize| (of > 0 && number.is_multiple_of(of)).then_some(number / of);
    let nodes = per(machine.node_count(), machine.socket_count());
    let shape = match (nodes, crate::Shape::of(machine)) {
        (Some(nodes), Some((shape, _))) => {
            let parts = [
                count(machine.socket_count(), "socket"),
                count(nodes, "node"),
                count(shape.llcs_per_node as usize, "LLC"),
                count(shape.cores_per_llc as usize, "core"),
                count(shape.threads_per_core as usize, "thread"),
            ];
            format!("{} = {}", parts.join(" × "), count(machine.cpu_count(), "CPU"))
        }
        _ => {
            let parts = [
                count(machine.socket_count(), "socket"),
                count(machine.node_count(), "node"),
                count(machine.llc_count(), "LLC"),
                count(machine.core_count(), "core"),
                count(machine.cpu_count(), "CPU"),
            ];
            parts.join(", ")
        }
    };
    for line in wrap(&format!("{}: {shape}", shorten(machine.name(), 60)), text.width) {
        let _ = writeln!(text, "{line}");
    }
    if !machine.summary().is_empty() {
        for line in wrap(machine.summary(), text.width) {
            let _ = writeln!(text, "{line}");
        }
    }
    if let Some(processor) = machine.processor() {
        let origin = machine.origin(PROCESSOR).map_or(String::new(), |origin| format!(" ({origin})"));
        text.cut(&format!("CPUs by {processor}{origin}"));
    }
    let sizes: BTreeSet<usize> = machine.coregroups.iter().map(CpuSet::len).collect();
    if let (Some(least), Some(most)) = (sizes.first(), sizes.last()) {
        let range = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let _ = writeln!(text, "scheduling domains take groups of {range} CPUs for LLCs");
    }
}

/// Consecutive members with equal signatures.
fn alike<T, S: PartialEq>(members: Vec<T>, signature: impl Fn(&T) -> S) -> Vec<Vec<T>> {
    let mut groups: Vec<(S, Vec<T>)> = Vec::new();
    for member in members {
        let own = signature(&member);
        match groups.last_mut() {
            Some((last, group)) if *last == own => group.push(member),
            _ => groups.push((own, vec![member])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// What is drawn of an LLC but for numbers: cores (threads, cluster, capacity, priority), its cache.
type LlcSignature = (Vec<(usize, u32, u32, u32)>, Option<(u8, u64, Ways)>);

fn llc_signature(machine: &Machine, llc: LlcId) -> LlcSignature {
    let cpus = machine.cpus_of_llc(llc);
    let first_cluster = cpus.first().map_or(0, |cpu| machine.cluster_of(cpu).0);
    let mut cores = Vec::new();
    for cpu in cpus.iter() {
        let core = machine.cpus_of_core(machine.core_of(cpu));
        if core.first() == Some(cpu) {
            let cluster = machine.cluster_of(cpu).0 - first_cluster;
            cores.push((core.len(), cluster, machine.capacity(cpu), machine.priority(cpu)));
        }
    }
    (cores, machine.llc_cache(llc).map(|cache| (cache.level, cache.size_bytes, cache.ways)))
}

fn node_signature(machine: &Machine, node: NodeId, socket: SocketId) -> (Option<u64>, Vec<LlcSignature>) {
    let llcs = llcs_in(machine, node, socket).into_iter().map(|llc| llc_signature(machine, llc)).collect();
    (machine.node_memory_bytes(node), llcs)
}

fn socket_signature(machine: &Machine, socket: SocketId) -> Vec<(Option<u64>, Vec<LlcSignature>)> {
    machine.nodes_of_socket(socket).iter().map(|node| node_signature(machine, *node, socket)).collect()
}

/// A node may reach into several sockets.
fn llcs_in(machine: &Machine, node: NodeId, socket: SocketId) -> Vec<LlcId> {
    let here = |llc: &&LlcId| machine.cpus_of_llc(**llc).is_subset(machine.cpus_of_socket(socket));
    machine.llcs_of_node(node).iter().filter(here).copied().collect()
}

fn os_list(machine: &Machine, cpus: &CpuSet) -> String {
    format_cpu_list(cpus.iter().map(|cpu| machine.os_index(cpu)))
}

fn memory_of(machine: &Machine, node: NodeId) -> String {
    machine.node_memory_bytes(node).map(|bytes| format!(", memory {}", format_size_rounded(bytes))).unwrap_or_default()
}

fn sockets(machine: &Machine, group: &[SocketId], text: &mut Page) {
    let Some((first, others)) = group.split_first() else { return };
    let cpus = os_list(machine, machine.cpus_of_socket(*first));
    let cpus = shorten(&cpus, text.width - 20);
    let _ = writeln!(text, "\nsocket {}  CPUs {cpus}", machine.socket_os_index(*first));
    let nodes = machine.nodes_of_socket(*first).to_vec();
    for group in alike(nodes, |node| node_signature(machine, *node, *first)) {
        self::nodes(machine, &group, *first, text);
    }
    for other in others {
        let cpus = os_list(machine, machine.cpus_of_socket(*other));
        let numbers = machine.nodes_of_socket(*other).iter().map(|node| machine.node_os_index(*node));
        let nodes = format_cpu_list(numbers);
        let word = if machine.nodes_of_socket(*other).len() == 1 { "node" } else { "nodes" };
        let line = format!(
            "socket {}  like socket {}: {word} {nodes}, CPUs {cpus}",
            machine.socket_os_index(*other),
            machine.socket_os_index(*first)
        );
        text.cut(&line);
    }
}

fn nodes(machine: &Machine, group: &[NodeId], socket: SocketId, text: &mut Page) {
    let Some((first, others)) = group.split_first() else { return };
    let cpus = os_list(machine, machine.cpus_of_node(*first));
    let line = format!("  node {}  CPUs {cpus}{}", machine.node_os_index(*first), memory_of(machine, *first));
    text.cut(&line);
    for group in alike(llcs_in(machine, *first, socket), |llc| llc_signature(machine, *llc)) {
        llc_boxes(machine, &group, text);
    }
    for other in others {
        let cpus = os_list(machine, machine.cpus_of_node(*other));
        let (number, like) = (machine.node_os_index(*other), machine.node_os_index(*first));
        let line = format!("  node {number}  like node {like}: CPUs {cpus}{}", memory_of(machine, *other));
        text.cut(&line);
    }
}

/// Boxes of LLCs that are alike: up to three side by side, of more the first, a count and the last.
fn llc_boxes(machine: &Machine, group: &[LlcId], text: &mut Page) {
    const SIDE_BY_SIDE: usize = 3;
    let folded = group.len() > SIDE_BY_SIDE;
    let shown: Vec<LlcId> = if folded { vec![group[0], group[group.len() - 1]] } else { group.to_vec() };
    let boxes: Vec<Vec<String>> = shown.iter().map(|llc| llc_box(machine, *llc)).collect();
    let middle = format!(" ... {} more alike ... ", group.len() - shown.len());
    let gaps = (boxes.len() - 1) * if folded { middle.chars().count() } else { 1 };
    if BOX_INDENT + boxes.len() * (BOX_WIDTH + 4) + gaps > text.width {
        for (position, drawn) in boxes.iter().enumerate() {
            if folded && position > 0 {
                let _ = writeln!(text, "{:BOX_INDENT$}{}", "", middle.trim());
            }
            for line in drawn {
                let _ = writeln!(text, "{:BOX_INDENT$}{line}", "");
            }
        }
        return;
    }
    let height = boxes.iter().map(Vec::len).max().unwrap_or(0);
    let gap = if folded { middle.chars().count() } else { 1 };
    let separator = |row: usize| match folded {
        true if row == height / 2 => middle.clone(),
        _ => " ".repeat(gap),
    };
    for row in 0..height {
        let cells: Vec<&str> = boxes.iter().filter_map(|lines| lines.get(row)).map(String::as_str).collect();
        let _ = writeln!(text, "    {}", cells.join(&separator(row)));
    }
}

fn llc_box(machine: &Machine, llc: LlcId) -> Vec<String> {
    let cpus = machine.cpus_of_llc(llc);
    let (cores, _) = llc_signature(machine, llc);
    let core_numbers = cpus.iter().map(|cpu| machine.core_of(cpu).0).collect::<std::collections::BTreeSet<_>>();
    let mut lines = Vec::new();
    if let Some(cache) = machine.llc_cache(llc) {
        lines.push(format!("{} {}", cache.name(), size(cache)));
    }
    let clusters = cores.iter().map(|(_, cluster, ..)| cluster).collect::<std::collections::BTreeSet<_>>().len();
    let in_clusters =
        if clusters < cores.len() { format!(" in {}", count(clusters, "cluster")) } else { String::new() };
    for group in alike(cores, |(threads, _, capacity, priority)| (*threads, *capacity, *priority)) {
        let Some((threads, _, capacity, priority)) = group.first() else { continue };
        let power = if *capacity == crate::CAPACITY_SCALE { String::new() } else { format!(", capacity {capacity}") };
        let rank = if *priority == 0 { String::new() } else { format!(", priority {priority}") };
        lines.push(format!("{} × {}{power}{rank}", count(group.len(), "core"), count(*threads, "thread")));
    }
    lines.push(format!("cores {}{in_clusters}", format_cpu_list(core_numbers)));
    lines.push(format!("CPUs {}", os_list(machine, cpus)));
    let title = format!(" llc {} ", llc.0);
    let mut drawn = vec![format!("┌{title:─<width$}┐", width = BOX_WIDTH + 2)];
    drawn.extend(lines.iter().map(|line| format!("│ {:<BOX_WIDTH$} │", shorten(line, BOX_WIDTH))));
    drawn.push(format!("└{:─<width$}┘", "", width = BOX_WIDTH + 2));
    drawn
}

fn caches(machine: &Machine, text: &mut Page) {
    let entries = cache_entries(machine);
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(text, "\ncaches");
    for entry in entries {
        let cache = &entry.cache;
        let latency = cache.latency_ps.map(|latency| format!("{} ns", decimal(latency, 3))).unwrap_or_default();
        let shared = match (entry.shared_by, &entry.cpus) {
            (CacheScope::Cpus, Some(cpus)) => format!("CPUs {}", format_cpu_list(cpus.iter().copied())),
            (scope, None) => format!("per {}", scope.name()),
            (scope, Some(cpus)) => format!("per {} of CPUs {}", scope.name(), format_cpu_list(cpus.iter().copied())),
        };
        let mut origin = entry.origin.to_string();
        if cache.latency_ps.is_some() && entry.latency_origin != entry.origin {
            let _ = write!(origin, "; latency {}", entry.latency_origin);
        }
        let cells = format!(
            "  {:<4} {:>10}  {:<10} {:<14} {:>9}  {shared:<12} ",
            cache.name(),
            size(cache),
            ways(cache),
            line_and_inclusion(cache),
            latency,
        );
        text.row(&cells, &origin);
    }
}

/// The size of a cache for people.
fn size(cache: &Cache) -> String {
    if cache.size_bytes == 0 { "? size".to_owned() } else { format_size_rounded(cache.size_bytes) }
}

fn ways(cache: &Cache) -> String {
    match cache.ways {
        Ways::Unknown => "? ways".to_owned(),
        Ways::Full => "full".to_owned(),
        Ways::Count(ways) => format!("{ways} ways"),
    }
}

fn line_and_inclusion(cache: &Cache) -> String {
    let inclusion = match cache.inclusion {
        Inclusion::Unknown => "",
        Inclusion::Inclusive => " incl",
        Inclusion::Exclusive => " excl",
        Inclusion::NonInclusive => " non-incl",
    };
    format!("{} B{inclusion}", cache.line_bytes)
}

fn distances(machine: &Machine, text: &mut Page) {
    let count = machine.node_count();
    if count < 2 {
        return;
    }
    let origin = machine.origin(DISTANCES).map_or("assumed".to_owned(), |origin| origin.to_string());
    let _ = writeln!(text);
    text.cut(&format!("node distances ({origin})"));
    let distance = machine.reclaim_distance();
    let origin = machine.origin(STATED_RECLAIM_DISTANCE).map_or(String::new(), |origin| format!(" ({origin})"));
    text.cut(&format!("reclaim distance {distance}{origin}"));
    if count > MATRIX_NODES || 6 + 4 * count > text.width {
        let mut distinct: std::collections::BTreeMap<u32, usize> = std::collections::BTreeMap::new();
        for from in machine.nodes() {
            for to in machine.nodes() {
                *distinct.entry(machine.node_distance(from, to)).or_default() += 1;
            }
        }
        for (distance, pairs) in distinct {
            let _ = writeln!(text, "  {distance:>3}  {}", self::count(pairs, "pair"));
        }
        return;
    }
    let head: String = machine.nodes().map(|node| format!("{:>4}", machine.node_os_index(node))).collect();
    let _ = writeln!(text, "  node{head}");
    for from in machine.nodes() {
        let row: String = machine.nodes().map(|to| format!("{:>4}", machine.node_distance(from, to))).collect();
        let _ = writeln!(text, "  {:>4}{row}", machine.node_os_index(from));
    }
}

/// One line per relation: what crosses it and at what cost.
fn relations(machine: &Machine, text: &mut Page) {
    let costs = machine.costs();
    if machine.cpu_count() == 1 {
        return;
    }
    let cells = format!("{:<26}{:>13}{:>10}{:>13}   ", "relation", "line", "interrupt", "migration");
    let _ = writeln!(text);
    text.row(&cells, "origin of the line's latency");
    for relation in machine.relations().into_iter().skip(1) {
        let name = format!("core_to_core_ns.{}", relation.name());
        let origin = match machine.origin(&name) {
            Some(origin) => spread_and_origin(origin),
            None => "assumed: typical".to_owned(),
        };
        let cells = format!(
            "  {:<24}{:>10} ns{:>7} ns{:>10} ns   ",
            relation.description(),
            costs.line_transfer_ns[relation],
            costs.ipi_ns[relation],
            costs.migration_ns[relation],
        );
        text.row(&cells, &origin);
    }
    let variants: Vec<&str> =
        machine.performance().core_to_core_variants.iter().map(|variant| variant.name.as_str()).collect();
    if !variants.is_empty() {
        wrapped(text, "  other core-to-core tables", &variants.join(", "));
    }
}

fn spread_and_origin(origin: &Origin) -> String {
    match origin.spread {
        Some((low, high)) => format!("[{low}-{high}] {origin}"),
        None => origin.to_string(),
    }
}

/// Frequencies, memory and costs that do not depend on the relation.
fn figures(machine: &Machine, text: &mut Page) {
    let performance = machine.performance();
    let mhz = |value: Option<u32>| value.map(|mhz| format!("{mhz} MHz"));
    let frequency = &performance.frequency;
    let values = [
        ("base", "base_mhz", mhz(frequency.base_mhz)),
        ("max", "max_mhz", mhz(frequency.max_mhz)),
        ("nominal", "nominal_mhz", mhz(frequency.nominal_mhz)),
    ];
    with_origins(machine, "frequency", &values, text);
    for kind in machine.core_kinds() {
        core_kind(kind, text);
    }

    let ns = |value: Option<u64>| value.map(|ns| format!("{ns} ns"));
    let bandwidth = |value: Option<Bandwidth>| {
        value.map(|bandwidth| match bandwidth {
            Bandwidth::MbPerS(mb) => format!("{} GB/s", decimal(mb, 3)),
            Bandwidth::Unlimited => "unlimited".to_owned(),
        })
    };
    let memory = &performance.memory;
    let values = [
        ("local", "local_ns", ns(memory.local_ns)),
        ("same socket", "same_socket_ns", ns(memory.same_socket_ns)),
        ("other socket", "other_socket_ns", ns(memory.other_socket_ns)),
        ("far socket", "far_socket_ns", ns(memory.far_socket_ns)),
        ("socket read", "socket_read_gb_per_s", bandwidth(memory.socket_read)),
        ("socket 1:1", "socket_mixed_gb_per_s", bandwidth(memory.socket_mixed)),
        ("socket link", "socket_link_gb_per_s", bandwidth(memory.socket_link)),
        ("node link", "node_link_gb_per_s", bandwidth(memory.node_link)),
        ("LLC port", "llc_port_gb_per_s", bandwidth(memory.llc_port)),
        ("cluster port", "cluster_port_gb_per_s", bandwidth(memory.cluster_port)),
        ("core port", "core_port_gb_per_s", bandwidth(memory.core_port)),
    ];
    with_origins(machine, "memory", &values, text);

    let costs = machine.costs();
    let values = [
        ("context switch", "context_switch_ns", ns(Some(costs.context_switch_ns))),
        ("wakeup", "wakeup_ns", ns(Some(costs.wakeup_ns))),
        ("idle exit", "idle_exit_ns", ns(Some(costs.idle_exit_ns))),
        ("tick", "tick_ns", ns(Some(costs.tick_ns))),
        ("system call", "syscall_ns", ns(Some(costs.syscall_ns))),
        ("page fault", "page_fault_ns", ns(Some(costs.page_fault_ns))),
        ("futex", "futex_ns", ns(Some(costs.futex_ns))),
        ("pipe message", "pipe_message_ns", ns(Some(costs.pipe_message_ns))),
        ("socket message", "socket_message_ns", ns(Some(costs.socket_message_ns))),
        ("fork", "fork_ns", ns(Some(costs.fork_ns))),
        ("exit", "exit_ns", ns(Some(costs.exit_ns))),
    ];
    with_origins(machine, "costs", &values, text);
}

/// A kind of cores: its frequencies, power and idle states.
fn core_kind(kind: &CoreKind, text: &mut Page) {
    let cpus = kind
        .cpus
        .as_ref()
        .map_or("all CPUs".to_owned(), |cpus| format!("CPUs {}", crate::format_cpu_list(cpus.iter().copied())));
    let _ = writeln!(text);
    text.cut(&format!("core kind {} ({cpus}; {})", kind.name, kind.origin.short()));
    let (lowest, highest) = (kind.lowest_mhz(), kind.highest_mhz());
    let count = kind.frequencies_mhz.len();
    let mut parts = vec![
        format!("{count} frequencies {lowest} to {highest} MHz"),
        format!("one per {}", kind.clock.name()),
        format!("reference {} MHz", kind.reference_mhz),
        format!("transition {} us", decimal(kind.transition_ns, 3)),
    ];
    parts.extend(kind.turbo.iter().map(|(cores, mhz)| format!("up to {cores} active {mhz} MHz")));
    wrapped(text, "  clock", &parts.join(", "));
    if kind.has_energy_model() {
        let power = |mhz| format!("{} mW at {mhz} MHz", decimal(kind.busy_power_uw(mhz), 3));
        let (low, high) = (power(lowest), power(highest));
        wrapped(text, "  power", &format!("{low}, {high} ({})", kind.power_origin.short()));
    }
    let states: Vec<String> = kind
        .idle
        .iter()
        .map(|state| {
            let power = state.power_uw.map(|power| format!(", {} mW", decimal(power, 3))).unwrap_or_default();
            let (exit, residency) = (decimal(state.exit_ns, 3), decimal(state.residency_ns, 3));
            format!("{} (exit {exit} us, from {residency} us{power})", state.name)
        })
        .collect();
    if !states.is_empty() {
        wrapped(text, "  idle", &format!("{} ({})", states.join(", "), kind.idle_origin.short()));
    }
}

/// Values of a section as (label, key, value). The origin that most have stands in front, others with their value.
fn with_origins(machine: &Machine, section: &str, values: &[(&str, &str, Option<String>)], text: &mut Page) {
    let origin = |key: &str| machine.origin(&format!("{section}.{key}")).map(Origin::short).unwrap_or_default();
    let stated: Vec<(&str, &String, String)> =
        values.iter().filter_map(|(label, key, value)| Some((*label, value.as_ref()?, origin(key)))).collect();
    let frequency = |origin: &String| stated.iter().filter(|(_, _, other)| other == origin).count();
    let Some(common) = stated.iter().map(|(_, _, origin)| origin).max_by_key(|origin| frequency(origin)) else {
        return;
    };
    let parts: Vec<String> = (stated.iter())
        .map(
            |(label, value, origin)| {
                if origin == common { format!("{label} {value}") } else { format!("{label} {value} ({origin})") }
            },
        )
        .collect();
    let head = if common.is_empty() { format!("\n{section}") } else { format!("\n{section} ({common})") };
    // A value and its unit stay on one line.
    let parts: Vec<String> = parts.iter().map(|part| part.replace(' ', NO_BREAK)).collect();
    wrapped(text, &head, &parts.join(", "));
}

fn sources(machine: &Machine, text: &mut Page) {
    if !machine.sources().is_empty() {
        let _ = writeln!(text, "\nsources");
    }
    let mut sources: Vec<_> = machine.sources().iter().collect();
    sources.sort_by_key(|(tag, _)| (tag.len(), *tag));
    for (tag, source) in sources {
        wrapped(text, &format!("  {tag}"), source);
    }
}

/// `head: text`, continued on indented lines.
fn wrapped(text: &mut Page, head: &str, body: &str) {
    let indent = 4;
    let first = head.trim_start_matches('\n');
    if first.len() < head.len() {
        let _ = writeln!(text);
    }
    let all = format!("{first}: {body}");
    for (number, line) in wrap(&all, text.width - indent).into_iter().enumerate() {
        let _ = writeln!(text, "{}{}", if number == 0 { "" } else { "    " }, line.replace(NO_BREAK, " "));
    }
}

/// Breaks a text at blanks, or after commas where there are none, so that no line is longer than `width`.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let indent: String = text.chars().take_while(|c| *c == ' ').collect();
    let mut lines = vec![indent];
    for word in text.split_ascii_whitespace() {
        for piece in pieces(word, width) {
            let last = lines.last_mut().expect("there is always a line");
            let glue = if last.trim().is_empty() { "" } else { " " };
            if last.chars().count() + glue.len() + piece.chars().count() > width && !last.trim().is_empty() {
                lines.push(piece);
            } else {
                last.push_str(glue);
                last.push_str(&piece);
            }
        }
    }
    lines
}

/// A word cut to lines.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let characters: Vec<char> = word.chars().collect();
    characters.chunks(width).map(|chunk| chunk.iter().collect()).collect()
}

/// At most `width` characters, with dots for what is missing.
fn shorten(text: &str, width: usize) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if clean.chars().count() <= width {
        return clean;
    }
    clean.chars().take(width.saturating_sub(3)).chain("...".chars()).collect()
}
