//! Regular machines from a short form: `2s6n2l8c2t`.
//!
//! | letter | counts |
//! |---|---|
//! | `s` | sockets |
//! | `n` | NUMA nodes per socket |
//! | `l` | last-level caches per node |
//! | `c` | cores per last-level cache |
//! | `t` | hardware threads per core |
//!
//! Letters come in this order and a missing one means 1. A form that has `n` but no `s` is read as the ktstr test
//! tool writes it (`2n4l4c2t`): `l` counts all LLCs of the machine, which must divide evenly among the nodes, every
//! node is a socket of its own at distance 20, and CPU numbers of one core are adjacent.
//!
//! Other machines are numbered as Linux numbers x86 machines: the first threads of all cores, then the second threads
//! of all cores ([`SmtNumbering::Split`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::build::MAX_CPUS;
use crate::{CpuDescription, Error, Location, Machine, NodeDescription, Result};

/// How generated machines number the hardware threads of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SmtNumbering {
    /// First threads of all cores, then second threads of all cores: Linux on x86.
    #[default]
    Split,
    /// The threads of one core have consecutive numbers: Linux on POWER and on many arm64 machines.
    Adjacent,
}

/// The numbers of a regular machine. Every one is at least 1 and their product at most [`MAX_CPUS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Sockets.
    pub sockets: u32,
    /// NUMA nodes per socket.
    pub nodes_per_socket: u32,
    /// Last-level caches per node.
    pub llcs_per_node: u32,
    /// Cores per last-level cache.
    pub cores_per_llc: u32,
    /// Hardware threads per core.
    pub threads_per_core: u32,
}

/// A short form as written: the shape, and how its CPUs are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortForm {
    /// The numbers.
    pub shape: Shape,
    /// Numbering of hardware threads.
    pub smt_numbering: SmtNumbering,
}

const FORMAT: &str = "short form";
const LETTERS: [char; 5] = ['s', 'n', 'l', 'c', 't'];
const EXAMPLE: &str = "write counts and letters in this order, for example `2s6n2l8c2t`: \
                       sockets, nodes per socket, LLCs per node, cores per LLC, threads per core";

impl Shape {
    /// The number of CPUs.
    pub fn cpu_count(&self) -> usize {
        self.core_count() as usize * self.threads_per_core as usize
    }

    fn core_count(&self) -> u32 {
        self.sockets * self.nodes_per_socket * self.llcs_per_node * self.cores_per_llc
    }

    /// The CPUs of the machine. A cluster has `cores_per_cluster` cores of one LLC, the last one of an LLC maybe
    /// fewer.
    pub fn cpus(&self, numbering: SmtNumbering, cores_per_cluster: u32) -> Vec<CpuDescription> {
        let cores = self.core_count();
        let clusters_per_llc = self.cores_per_llc.div_ceil(cores_per_cluster.max(1));
        let cpu = |core: u32, thread: u32| {
            let llc = core / self.cores_per_llc;
            let node = llc / self.llcs_per_node;
            CpuDescription {
                os_index: match numbering {
                    SmtNumbering::Split => thread * cores + core,
                    SmtNumbering::Adjacent => core * self.threads_per_core + thread,
                },
                core,
                cluster: llc * clusters_per_llc + core % self.cores_per_llc / cores_per_cluster.max(1),
                llc,
                node,
                socket: node / self.nodes_per_socket,
                capacity: crate::CAPACITY_SCALE,
            }
        };
        (0..cores).flat_map(|core| (0..self.threads_per_core).map(move |thread| cpu(core, thread))).collect()
    }

    /// The CPUs in groups of `cores` cores of one node, the last one of a node maybe of fewer.
    pub(crate) fn coregroups(&self, numbering: SmtNumbering, cores: u32) -> Vec<BTreeSet<u32>> {
        let cores_per_node = self.llcs_per_node * self.cores_per_llc;
        let mut groups: BTreeMap<(u32, u32), BTreeSet<u32>> = BTreeMap::new();
        for cpu in self.cpus(numbering, 1) {
            let group = cpu.core % cores_per_node / cores;
            groups.entry((cpu.node, group)).or_default().insert(cpu.os_index);
        }
        groups.into_values().collect()
    }

    /// The NUMA nodes of the machine.
    pub fn nodes(&self) -> Vec<NodeDescription> {
        (0..self.sockets * self.nodes_per_socket)
            .map(|os_index| NodeDescription { os_index, memory_bytes: None })
            .collect()
    }

    /// The shape and numbering of a machine, if it is regular: all groups of a level have equal size and CPU numbers
    /// follow one of the two numberings. Clusters, capacities and offline CPUs are not looked at.
    pub fn of(machine: &Machine) -> Option<(Shape, SmtNumbering)> {
        let ratio = |count: usize, of: usize| (of > 0 && count.is_multiple_of(of)).then_some((count / of) as u32);
        let shape = Shape {
            sockets: machine.socket_count() as u32,
            nodes_per_socket: ratio(machine.node_count(), machine.socket_count())?,
            llcs_per_node: ratio(machine.llc_count(), machine.node_count())?,
            cores_per_llc: ratio(machine.core_count(), machine.llc_count())?,
            threads_per_core: ratio(machine.cpu_count(), machine.core_count())?,
        };
        let numbered_as = |numbering: &SmtNumbering| {
            let mut cpus = shape.cpus(*numbering, 1);
            cpus.sort_by_key(|cpu| cpu.os_index);
            machine.nodes().all(|node| machine.node_os_index(node) == node.0)
                && machine.cpus().zip(&cpus).all(|(id, cpu)| {
                    machine.os_index(id) == cpu.os_index
                        && machine.core_of(id).0 == cpu.core
                        && machine.llc_of(id).0 == cpu.llc
                        && machine.node_of(id).0 == cpu.node
                        && machine.socket_os_index(machine.socket_of(id)) == cpu.socket
                })
        };
        [SmtNumbering::Split, SmtNumbering::Adjacent].into_iter().find(numbered_as).map(|numbering| (shape, numbering))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { sockets, nodes_per_socket, llcs_per_node, cores_per_llc, threads_per_core } = self;
        write!(f, "{sockets}s{nodes_per_socket}n{llcs_per_node}l{cores_per_llc}c{threads_per_core}t")
    }
}

impl ShortForm {
    /// Whether a text has the outward form of a short form: letters of the form, each after a number. Used to tell a
    /// mistyped short form from a mistyped name.
    pub fn looks_like(text: &str) -> bool {
        let starts_with_digit = text.starts_with(|c: char| c.is_ascii_digit());
        let only_known = text.chars().all(|c| c.is_ascii_digit() || LETTERS.contains(&c));
        starts_with_digit && only_known && text.ends_with(LETTERS)
    }
}

impl FromStr for ShortForm {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let counts = read_counts(text)?;
        let count = |position: usize| counts[position].unwrap_or(1);
        let ktstr = counts[0].is_none() && counts[1].is_some();
        let shape = if ktstr {
            let (nodes, llcs) = (count(1), counts[2].unwrap_or(count(1)));
            if llcs % nodes != 0 {
                let reason = format!("`{text}`: {llcs} LLCs cannot be divided evenly among {nodes} nodes");
                let hint =
                    "without `s`, `l` counts all LLCs of the machine (as ktstr does); write `s` to count per node";
                return Err(Error::invalid_with_hint(Location::format(FORMAT), reason, hint));
            }
            Shape {
                sockets: nodes,
                nodes_per_socket: 1,
                llcs_per_node: llcs / nodes,
                cores_per_llc: count(3),
                threads_per_core: count(4),
            }
        } else {
            Shape {
                sockets: count(0),
                nodes_per_socket: count(1),
                llcs_per_node: count(2),
                cores_per_llc: count(3),
                threads_per_core: count(4),
            }
        };
        let sizes = [shape.nodes_per_socket, shape.llcs_per_node, shape.cores_per_llc, shape.threads_per_core];
        let cpus = sizes.into_iter().try_fold(shape.sockets, u32::checked_mul);
        if cpus.is_none_or(|cpus| cpus as usize > MAX_CPUS) {
            let reason = format!("`{text}` has more than {MAX_CPUS} CPUs");
            return Err(Error::invalid(Location::format(FORMAT), reason));
        }
        let smt_numbering = if ktstr { SmtNumbering::Adjacent } else { SmtNumbering::Split };
        Ok(ShortForm { shape, smt_numbering })
    }
}

/// The count before each of the five letters.
fn read_counts(text: &str) -> Result<[Option<u32>; 5]> {
    let fail =
        |reason: String| Error::invalid_with_hint(Location::format(FORMAT), format!("`{text}`: {reason}"), EXAMPLE);
    let mut counts = [None; 5];
    let mut next_letter = 0;
    let mut rest = text;
    if rest.is_empty() {
        return Err(fail("it is empty".to_owned()));
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let Some(letter) = tail.chars().next() else { return Err(fail(format!("no letter follows `{number}`"))) };
        let Some(position) = LETTERS.iter().position(|&known| known == letter) else {
            return Err(fail(format!("unknown letter `{letter}`")));
        };
        if position < next_letter {
            return Err(fail(format!("`{letter}` is repeated or out of order")));
        }
        let count: u32 = number.parse().map_err(|_| fail(format!("`{number}{letter}` has no usable count")))?;
        if count == 0 {
            return Err(fail(format!("`0{letter}`: every count is at least 1")));
        }
        counts[position] = Some(count);
        next_letter = position + 1;
        rest = &tail[letter.len_utf8()..];
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> [u32; 5] {
        let Shape { sockets, nodes_per_socket, llcs_per_node, cores_per_llc, threads_per_core } =
            text.parse::<ShortForm>().unwrap().shape;
        [sockets, nodes_per_socket, llcs_per_node, cores_per_llc, threads_per_core]
    }

    #[test]
    fn missing_letters_mean_one() {
        assert_eq!(shape("2s6n2l8c2t"), [2, 6, 2, 8, 2]);
        assert_eq!(shape("8c"), [1, 1, 1, 8, 1]);
        assert_eq!(shape("2s4c2t"), [2, 1, 1, 4, 2]);
    }

    #[test]
    fn a_form_without_sockets_counts_llcs_as_ktstr_does() {
        assert_eq!(shape("2n4l4c2t"), [2, 1, 2, 4, 2]);
        assert_eq!("2n4l4c2t".parse::<ShortForm>().unwrap().smt_numbering, SmtNumbering::Adjacent);
        assert!("2n3l4c2t".parse::<ShortForm>().unwrap_err().to_string().contains("3 LLCs cannot be divided"));
    }

    #[test]
    fn malformed_forms_say_what_is_wrong() {
        for (text, reason) in [
            ("", "is empty"),
            ("2x", "unknown letter `x`"),
            ("2c2s", "out of order"),
            ("2c2c", "repeated"),
            ("0c", "at least 1"),
            ("c", "no usable count"),
            ("4", "no letter follows"),
            ("99999999999c", "no usable count"),
            ("2s4097c", "more than 4096"),
            ("65536s65536c", "more than 4096"),
        ] {
            let message = text.parse::<ShortForm>().unwrap_err().to_string();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }

    #[test]
    fn split_numbering_puts_second_threads_after_all_cores() {
        let shape = "2s2c2t".parse::<ShortForm>().unwrap().shape;
        let core_of = |numbering| {
            let mut cpus = shape.cpus(numbering, 1);
            cpus.sort_by_key(|cpu| cpu.os_index);
            cpus.into_iter().map(|cpu| cpu.core).collect::<Vec<_>>()
        };
        assert_eq!(core_of(SmtNumbering::Split), [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(core_of(SmtNumbering::Adjacent), [0, 0, 1, 1, 2, 2, 3, 3]);
    }
}
