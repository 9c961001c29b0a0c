//! X8: many threads write one line. The line serves them one after the other; the exact level lets transfers of a line
//! overlap, so the yardstick here is a simulation of the line's queue.

use std::collections::VecDeque;

use warmcore_topology::{CpuId, Machine, Relation, split_mix};

use super::driver::{SMALL, Scenario, machine, play_analytic, profile, shared};
use super::{Effort, Point, SuiteError, SuiteOutcome};
use crate::hierarchy::Hierarchy;

/// Part of a transfer that a writer waits for: mlp_c (`docs/spec/memory-model.md` section 4.8).
const OVERLAP: f64 = 1.5;

/// X8: throughput of threads on one line, from rare touches to nothing but touches.
pub(super) fn hot_line(effort: Effort) -> Result<SuiteOutcome, SuiteError> {
    let mut outcome = SuiteOutcome::default();
    let shapes = [("1s1n1l64c1t", 64_u32), ("1s1n8l8c1t", 64), ("2s1n4l8c1t", 64)];
    for (shape, cpus) in shapes {
        let machine = machine(shape, &SMALL)?;
        for &count in effort.pick(&[4_u32, 32][..], &[2, 4, 8, 16, 32, 64]) {
            for &per_ki in effort.pick(&[2.0][..], &[0.3, 2.0, 10.0]) {
                // Spread evenly over the machine.
                let places: Vec<u32> = (0..count).map(|thread| thread * cpus / count).collect();
                let mut thread = profile("thread", &[(8.0, 20.0, 0.3)]);
                thread.classes.push(shared(0.0625, per_ki, 1.0));
                let think_ns = 0.5 / 2.5 / (per_ki / 1e3);
                let exact = queue_simulations(&machine, &places, think_ns, effort);
                let scenario = Scenario::steady(
                    effort,
                    machine.clone(),
                    vec![thread; count as usize],
                    &places,
                    1_000_000,
                    2_000_000,
                );
                let (table, _) = play_analytic(&scenario)?;
                let instructions: f64 = table[1].iter().map(|task| task.instructions).sum();
                let touches_per_us = instructions * per_ki / 1e3 / 2_000.0;
                let at = format!("{shape}, {count} threads, {per_ki} touches per 1000 instructions");
                outcome.points.push(Point::new(at, "throughput", exact, touches_per_us));
            }
        }
    }
    outcome.demand_worst("touches per us, largest relative", "throughput", 0.10, Point::relative);
    Ok(outcome)
}

/// Queues that are simulated apart. Where all wait, threads come in the order of the last round for ever: if neighbours in
/// that order are far apart, every transfer is a far one, up to 30 % of the throughput. The model knows no order.
const ORDERS: u32 = 16;

/// Touches per microsecond, mean over queues that begin differently.
fn queue_simulations(machine: &Machine, places: &[u32], think_ns: f64, effort: Effort) -> f64 {
    let seeds = (0..u64::from(ORDERS)).map(|order| effort.seed << 8 | order);
    let sum: f64 = seeds.map(|seed| queue_simulation(machine, places, think_ns, effort, seed)).sum();
    sum / f64::from(ORDERS)
}

/// Touches per microsecond of threads that think, queue for the line, and get it from the last holder. Think times are
/// exponential, since the classes' touches are independent. A line is under way for the whole transfer, of which its
/// writer waits for a part. A holder that touches again keeps the line for nothing.
fn queue_simulation(machine: &Machine, places: &[u32], think_ns: f64, effort: Effort, seed: u64) -> f64 {
    let Ok(hierarchy) = Hierarchy::new(machine) else { return f64::NAN };
    let transfer = |from: usize, to: usize| {
        let relation = machine.relation(CpuId(places[from]), CpuId(places[to]));
        if relation == Relation::SameCpu { 0.0 } else { hierarchy.transfer_ns[relation] }
    };
    let mut draws = seed << 32;
    let mut think = || {
        draws += 1;
        let uniform = ((split_mix(draws) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        -think_ns * crate::math::ln(uniform)
    };
    // When each thread wants the line next; waiting ones stand in the queue.
    let mut wants: Vec<f64> = places.iter().map(|_| think()).collect();
    let mut queue: VecDeque<usize> = VecDeque::new();
    let (mut holder, mut free_at, mut served) = (0, 0.0_f64, 0_u64);
    let goal = effort.pick(2_500, 12_500);
    let (mut counted_from, warm) = (0.0, goal / 10);
    while served < goal + warm {
        let next = (0..wants.len()).min_by(|a, b| wants[*a].total_cmp(&wants[*b])).unwrap_or(0);
        // Everybody who comes before the line is free joins the queue first.
        if queue.is_empty() || wants[next] <= free_at {
            free_at = if queue.is_empty() { free_at.max(wants[next]) } else { free_at };
            wants[next] = f64::INFINITY;
            queue.push_back(next);
            continue;
        }
        let Some(thread) = queue.pop_front() else { break };
        let transfer_ns = transfer(holder, thread);
        wants[thread] = free_at + transfer_ns / OVERLAP + think();
        free_at += transfer_ns;
        holder = thread;
        served += 1;
        if served == warm {
            counted_from = free_at;
        }
    }
    goal as f64 / (free_at - counted_from) * 1e3
}
