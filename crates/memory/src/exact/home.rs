//! The home directory: which domains have copies of a line, who may write it, and on which node its page is. It
//! answers the domains' requests between two quanta, in the order of their times.
//!
//! Within a quantum a domain goes on as if its requests had been granted. Two domains that write the same line in one
//! quantum are therefore told so at its end: both are counted and pay, the earlier one loses the line then. The error
//! is the chance of a second conflicting touch within the quantum; hot lines need a shorter one. Waiting of one
//! transfer for another of the same line is not modelled. Source: `docs/spec/memory-model.md` sections 3.1 and 3.6.

use warmcore_topology::Relation;
use warmcore_trace::TimeShare;

use super::coherence::Source;
use super::domain::{Ask, Context, Domain, NO_HOME, Right, Transaction};
use super::options::Protocol;
use super::task::{TABLES, Task};

const NOBODY: u8 = u8::MAX;

/// Home entry of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HomeEntry {
    /// Bit per domain with a copy.
    pub(crate) domains: u64,
    /// Domains that had or wanted the line in this exchange.
    involved: u64,
    exchange: u32,
    /// The domain that may write, or whose copy is the newest (O).
    pub(crate) owner: u8,
    /// The domain that serves readers of a clean line (F).
    forwarder: u8,
}

impl HomeEntry {
    pub(crate) const NONE: HomeEntry =
        HomeEntry { domains: 0, involved: 0, exchange: 0, owner: NOBODY, forwarder: NOBODY };
}

/// The home directory of all lines that several domains may use.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) entries: Vec<HomeEntry>,
    pub(crate) protocol: Protocol,
    /// Relation and hand-off latency between domains, by rows.
    pub(crate) relations: Vec<Relation>,
    pub(crate) transfer_fs: Vec<u64>,
    /// Lines handed from domain to domain since the last epoch, by rows of the sender.
    pub(crate) transfers: Vec<u64>,
    exchange: u32,
    order: Vec<(u64, u16, u32)>,
    changed: Vec<u32>,
}

impl Home {
    pub(crate) fn new(protocol: Protocol, relations: Vec<Relation>, transfer_fs: Vec<u64>) -> Self {
        let transfers = vec![0; relations.len()];
        Self {
            entries: Vec::new(),
            protocol,
            relations,
            transfer_fs,
            transfers,
            exchange: 0,
            order: Vec::new(),
            changed: Vec::new(),
        }
    }

    /// Answers all requests and tells the domains what they may do with the lines concerned.
    pub(crate) fn exchange(&mut self, context: &mut Context, domains: &mut [Domain]) {
        self.order.clear();
        for (index, domain) in domains.iter().enumerate() {
            let numbered = domain.requests.iter().enumerate();
            self.order.extend(numbered.map(|(number, request)| (request.time_fs, index as u16, number as u32)));
        }
        if self.order.is_empty() {
            return;
        }
        self.order.sort_unstable();
        self.exchange = self.exchange.wrapping_add(1);
        self.changed.clear();
        for position in 0..self.order.len() {
            let (_, domain, number) = self.order[position];
            let domain = usize::from(domain);
            let request = domains[domain].requests[number as usize];
            self.note(request.line, domain);
            let for_tables = usize::from(request.class) == TABLES;
            let before = waiter(domains, domain, request).filter(|_| for_tables).map(|task| task.share_fs);
            match request.ask {
                Ask::Read => self.read(context, domains, domain, request),
                Ask::Own { source, held } => self.own(context, domains, domain, request, source, held),
                Ask::Gone => self.forget(domain, request.line),
            }
            if let (Some(before), Some(task)) = (before, waiter(domains, domain, request)) {
                task.was_walking(&before);
            }
        }
        for position in 0..self.changed.len() {
            self.settle(domains, self.changed[position]);
        }
        for domain in domains {
            domain.requests.clear();
        }
    }

    fn note(&mut self, line: u32, domain: usize) {
        let entry = &mut self.entries[line as usize];
        if entry.exchange != self.exchange {
            entry.exchange = self.exchange;
            entry.involved = entry.domains;
            self.changed.push(line);
        }
        entry.involved |= 1 << domain;
    }

    fn read(&mut self, context: &mut Context, domains: &mut [Domain], reader: usize, request: Transaction) {
        let entry = self.entries[request.line as usize];
        let holder = [entry.owner, entry.forwarder].into_iter().find(|holder| *holder != NOBODY);
        match holder.map(usize::from).filter(|holder| *holder != reader) {
            Some(holder) => self.hand_over(domains, holder, reader, request, false, false),
            None => self.read_memory(context, domains, reader, request, false),
        }
        let entry = &mut self.entries[request.line as usize];
        if entry.domains & !(1 << reader) == 0 {
            entry.owner = reader as u8;
        } else if entry.owner != NOBODY && self.protocol != Protocol::Moesi {
            let owner = usize::from(entry.owner);
            entry.owner = NOBODY;
            if domains[owner].has_newer(request.line) {
                domains[owner].write_back(context, request.line);
            }
        }
        if self.protocol == Protocol::Mesif {
            entry.forwarder = reader as u8;
        }
        entry.domains |= 1 << reader;
    }

    /// `source` and `held` as in [`Ask::Own`].
    fn own(
        &mut self,
        context: &mut Context,
        domains: &mut [Domain],
        writer: usize,
        request: Transaction,
        source: Source,
        held: Option<bool>,
    ) {
        let entry = self.entries[request.line as usize];
        let others = entry.domains & !(1 << writer);
        let has_data = source != Source::Outside && entry.domains & 1 << writer != 0;
        if others != 0 {
            let farthest = bits(others).max_by_key(|other| (self.transfer_fs[writer * domains.len() + other], *other));
            let from_cache = entry.owner != NOBODY || entry.forwarder != NOBODY;
            if !has_data && !from_cache {
                // Data comes from memory while the other copies are dropped; the slower of the two counts.
                let node = first_touch(context, request.line, domains[writer].node);
                domains[writer].traffic[node].reads += context.scale(request.line);
            }
            if let Some(farthest) = farthest {
                self.hand_over(domains, farthest, writer, request, true, held.is_some());
            }
        } else if has_data {
            let scale = context.scale(request.line);
            let domain = &mut domains[writer];
            if let Some(task) = &mut domain.tasks[usize::from(request.slot)] {
                let class = usize::from(request.class);
                let costs = task.costs[class];
                if usize::from(entry.owner) != writer {
                    task.counters[class].upgrades += scale;
                    if held.is_none() || costs.announced > 0 {
                        task.stall(TimeShare::Llc, costs.llc_fs);
                    }
                } else if source == Source::Own && held == Some(true) {
                    // The core read it alone a moment ago and has the right to write already (E): its L1 serves the write.
                    task.counters[class].l1_misses -= costs.scale;
                } else {
                    source.serve(task, class, held.is_some(), domain.transfer_fs);
                }
            }
        } else {
            self.read_memory(context, domains, writer, request, true);
        }
        let entry = &mut self.entries[request.line as usize];
        entry.domains = 1 << writer;
        entry.owner = writer as u8;
        entry.forwarder = NOBODY;
    }

    fn forget(&mut self, domain: usize, line: u32) {
        let entry = &mut self.entries[line as usize];
        entry.domains &= !(1 << domain);
        if usize::from(entry.owner) == domain {
            entry.owner = NOBODY;
        }
        if usize::from(entry.forwarder) == domain {
            entry.forwarder = NOBODY;
        }
    }

    /// A line, or the right to write one that the core has (`held`), goes from one domain to another.
    fn hand_over(
        &mut self,
        domains: &mut [Domain],
        from: usize,
        to: usize,
        request: Transaction,
        write: bool,
        held: bool,
    ) {
        let count = domains.len();
        let pair = to * count + from;
        let relation = self.relations[pair];
        let Some(task) = &mut domains[to].tasks[usize::from(request.slot)] else { return };
        let class = usize::from(request.class);
        let costs = task.costs[class];
        let counters = &mut task.counters[class];
        let counter = if write { &mut counters.remote_rfos } else { &mut counters.remote_reads };
        counter[relation] += costs.scale;
        self.transfers[from * count + to] += costs.scale;
        let crosses_sockets = matches!(relation, Relation::OtherSocket | Relation::FarSocket);
        let share = if crosses_sockets { TimeShare::OtherSocket } else { TimeShare::OtherLlc };
        task.wait(share, self.transfer_fs[pair], if held { costs.announced } else { costs.coherent });
    }

    fn read_memory(
        &self,
        context: &mut Context,
        domains: &mut [Domain],
        reader: usize,
        request: Transaction,
        write: bool,
    ) {
        let domain = &mut domains[reader];
        let node = first_touch(context, request.line, domain.node);
        domain.traffic[node].reads += context.scale(request.line);
        let Some(task) = &mut domain.tasks[usize::from(request.slot)] else { return };
        let class = usize::from(request.class);
        let costs = task.costs[class];
        let counters = &mut task.counters[class];
        *(if node == domain.node { &mut counters.dram_local } else { &mut counters.dram_remote }) += costs.scale;
        counters.dram_rfos += u64::from(write) * costs.scale;
        let latency = domain.memory[usize::from(task.core) * domain.memory_row + node];
        task.wait_for_memory(latency, node == domain.node, costs.exposed);
    }

    /// Brings the domains' rights in line with the home entry.
    fn settle(&mut self, domains: &mut [Domain], line: u32) {
        let entry = self.entries[line as usize];
        let shared = entry.domains.count_ones() > 1;
        for index in bits(entry.involved) {
            let domain = &mut domains[index];
            let right = domain.directory[line as usize].right;
            let wanted = if entry.domains & 1 << index == 0 {
                Right::None
            } else if usize::from(entry.owner) != index {
                Right::Shared
            } else if shared {
                if domain.has_newer(line) {
                    Right::Owned
                } else {
                    self.entries[line as usize].owner = NOBODY;
                    Right::Shared
                }
            } else if right.may_write() {
                right
            } else if right == Right::Owned {
                Right::Modified
            } else {
                domain.grant_exclusive(line);
                continue;
            };
            if wanted < right || wanted == Right::None && right != Right::None {
                domain.reduce_right(line, wanted, wanted == Right::Shared);
            } else {
                domain.directory[line as usize].right = wanted;
            }
        }
    }
}

/// The task that a request is for.
fn waiter(domains: &mut [Domain], domain: usize, request: Transaction) -> Option<&mut Task> {
    domains[domain].tasks.get_mut(usize::from(request.slot))?.as_deref_mut()
}

/// The node of a line's page; a page that nobody has touched is put on `toucher`.
fn first_touch(context: &mut Context, line: u32, toucher: usize) -> usize {
    let home = &mut context.homes[(line >> context.page_shift) as usize];
    if *home == NO_HOME {
        *home = toucher as u8;
    }
    usize::from(*home)
}

/// Numbers of the bits that are set, ascending.
fn bits(set: u64) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        let bit = (left != 0).then_some(left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(bit)
    })
}
