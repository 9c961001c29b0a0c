//! A process with all that it has started.

use std::fs;

/// Of each thread of processes and of their descendants how often it has given up its CPU; none if one of them runs, or if all have ended: that is
/// about to be told, and is no rest.
pub(super) fn threads_of(processes: &[u32]) -> Option<Vec<(u32, u64)>> {
    let mut all = Vec::new();
    let mut somebody_lives = false;
    let mut processes = processes.to_vec();
    while let Some(process) = processes.pop() {
        // One that is gone meanwhile runs no more.
        for thread in threads(process).unwrap_or_default() {
            let of = |file: &str| fs::read_to_string(format!("/proc/{process}/task/{thread}/{file}"));
            let status = of("status").ok()?;
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            // One that has ended and that nobody has asked after yet does nothing any more.
            let state = field("State:")?;
            if !state.starts_with(['S', 'Z', 'X']) {
                return None;
            }
            somebody_lives |= state.starts_with('S');
            all.push((thread, field("voluntary_ctxt_switches:")?.parse().ok()?));
            processes.extend(numbers(&of("children").unwrap_or_default()));
        }
    }
    all.sort_unstable();
    somebody_lives.then_some(all)
}

pub(super) fn threads(process: u32) -> Option<Vec<u32>> {
    let directory = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    Some(directory.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn numbers(text: &str) -> impl Iterator<Item = u32> {
    text.split_whitespace().filter_map(|number| number.parse().ok())
}

/// What a process has started itself, or has got from its children, and that still is there.
pub(super) fn children_of(process: u32) -> Vec<u32> {
    let of = |thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).unwrap_or_default();
    threads(process)
        .unwrap_or_default()
        .into_iter()
        .flat_map(|thread| numbers(&of(thread)).collect::<Vec<_>>())
        .collect()
}

/// All that a process has started and that still is there.
fn descendants(process: u32) -> Vec<u32> {
    let mut found = children_of(process);
    let mut next = 0;
    while let Some(&process) = found.get(next) {
        found.extend(children_of(process));
        next += 1;
    }
    found
}

/// Ends a process and all that it has started.
pub(super) fn end_with_all(process: u32) {
    end_all(process);
    // SAFETY: a plain system call, on a process below this one.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
}

/// Ends all that a process has started, its children's children included, but not itself. What begins meanwhile is found in the next look.
pub fn end_all(process: u32) {
    const LOOKS: u32 = 100;
    for _ in 0..LOOKS {
        let all: Vec<u32> = descendants(process).into_iter().filter(|child| is_alive(*child)).collect();
        if all.is_empty() {
            return;
        }
        for child in all {
            // SAFETY: a plain system call. It is a descendant of a process that is ours.
            unsafe { libc::kill(child as libc::pid_t, libc::SIGKILL) };
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Whether one of these processes, or of what they have started, has not ended yet.
pub(super) fn is_alive_with_all(processes: &[u32]) -> bool {
    processes.iter().any(|&process| is_alive(process) || descendants(process).into_iter().any(is_alive))
}

/// Whether it has not ended yet.
fn is_alive(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).map(str::trim);
    state.is_some_and(|state| !state.starts_with(['Z', 'X']))
}
