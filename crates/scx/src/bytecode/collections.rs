//! Objects that programs make, and the trees and lists they keep them in.
//!
//! A tree or a list is known by the address of its root or head, and what is in it by the addresses of its nodes, in order. The memory of roots and
//! nodes holds nothing that a program could read: in a kernel it may not either.

use std::collections::BTreeMap;

use warmcore_bpf::{Callee, Frame, HostFunction};

use crate::bytecode::helpers::{EINVAL, error, functions};
use crate::bytecode::host::Host;

/// Nodes of every tree and list, and which of them each node is in.
#[derive(Clone, Debug, Default)]
pub(super) struct Collections {
    nodes: BTreeMap<u64, Vec<u64>>,
    owner: BTreeMap<u64, u64>,
}

impl Collections {
    fn of(&self, root: u64) -> &[u64] {
        self.nodes.get(&root).map_or(&[], Vec::as_slice)
    }

    /// Puts a node at a place; false if it is in something already.
    fn insert(&mut self, root: u64, at: usize, node: u64) -> bool {
        if node == 0 || self.owner.contains_key(&node) {
            return false;
        }
        self.owner.insert(node, root);
        self.nodes.entry(root).or_default().insert(at, node);
        true
    }

    /// Takes a node out; 0 if it is not in this one.
    fn remove(&mut self, root: u64, node: u64) -> u64 {
        if self.owner.get(&node) != Some(&root) {
            return 0;
        }
        self.owner.remove(&node);
        if let Some(nodes) = self.nodes.get_mut(&root) {
            nodes.retain(|&known| known != node);
        }
        node
    }

    fn remove_at(&mut self, root: u64, node: Option<u64>) -> u64 {
        node.map_or(0, |node| self.remove(root, node))
    }
}

/// A kernel function about them that calls a function of the program: `bpf_rbtree_add(root, node, less)`.
pub(super) fn calling_back(name: &str) -> Option<Callee> {
    matches!(name, "bpf_rbtree_add" | "bpf_rbtree_add_impl").then_some(Callee::CallsBack(add_to_tree, 3))
}

/// Puts a node behind all that are not greater.
unsafe extern "C" fn add_to_tree(frame: *mut Frame, root: u64, node: u64, less: u64, _: u64, _: u64) -> u64 {
    let host = frame.cast::<Host>();
    // SAFETY: the frame is what the code was entered with; no reference to the host lives while the program is called.
    unsafe {
        let (mut from, mut to) = (0, (*host).kept.collections.of(root).len());
        while from < to {
            let middle = from.midpoint(to);
            let Some(&other) = (*host).kept.collections.of(root).get(middle) else { break };
            match Frame::call(frame, less, [node, other, 0, 0, 0]) {
                // What `less` gives is a `bool`.
                Some(result) if result & 0xff != 0 => to = middle,
                Some(_) => from = middle + 1,
                None => return error(EINVAL),
            }
        }
        let from = from.min((*host).kept.collections.of(root).len());
        if (*host).kept.collections.insert(root, from, node) { 0 } else { error(EINVAL) }
    }
}

/// A kernel function about them, by name.
pub(super) fn kfunc(name: &str) -> Option<(HostFunction, u8)> {
    let find: fn(&str) -> Option<(HostFunction, u8)> = functions! {
        "bpf_obj_new" | "bpf_obj_new_impl" => |host, ty| host.new_object(ty as u32);
        "bpf_obj_drop" | "bpf_obj_drop_impl" => |host, object| { host.release(object); 0 };
        "bpf_refcount_acquire" | "bpf_refcount_acquire_impl" => |host, object| host.acquire(object);
        "bpf_rbtree_first" | "bpf_list_front" => |host, root| host.kept.collections.of(root).first().copied().unwrap_or(0);
        "bpf_list_back" => |host, head| host.kept.collections.of(head).last().copied().unwrap_or(0);
        "bpf_rbtree_remove" | "bpf_list_del" => |host, root, node| host.kept.collections.remove(root, node);
        "bpf_list_push_front" | "bpf_list_push_front_impl" => |host, head, node| {
            if host.kept.collections.insert(head, 0, node) { 0 } else { error(EINVAL) }
        };
        "bpf_list_push_back" | "bpf_list_push_back_impl" => |host, head, node| {
            let end = host.kept.collections.of(head).len();
            if host.kept.collections.insert(head, end, node) { 0 } else { error(EINVAL) }
        };
        "bpf_list_pop_front" => |host, head| {
            let first = host.kept.collections.of(head).first().copied();
            host.kept.collections.remove_at(head, first)
        };
        "bpf_list_pop_back" => |host, head| {
            let last = host.kept.collections.of(head).last().copied();
            host.kept.collections.remove_at(head, last)
        };
        "bpf_list_empty" => |host, head| u64::from(host.kept.collections.of(head).is_empty());
        "bpf_list_is_first" => |host, head, node| u64::from(host.kept.collections.of(head).first() == Some(&node));
        "bpf_list_is_last" => |host, head, node| u64::from(host.kept.collections.of(head).last() == Some(&node));
    };
    find(name)
}

impl Host {
    /// A new object of a type of the program's; 0 for one that is too large for a kernel's page of objects here, or without memory.
    fn new_object(&mut self, ty: u32) -> u64 {
        let bytes = self.kept.types.as_ref().map_or(0, |types| u64::from(types.size(ty)));
        if bytes == 0 || bytes > self.kept.layout.cpumask_size { 0 } else { self.allocate() }
    }
}
