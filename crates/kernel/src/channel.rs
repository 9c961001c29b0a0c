//! Messages: what sending and receiving through pipes and sockets does and costs.
//!
//! Where memory is modelled, a message has three costs beside the kernel's instructions ([`Activity::Message`]):
//!
//! - *Lines of the channel* (its lock, positions, wait queue, buffer descriptors) come from the CPU that used the channel last,
//!   whatever it did; those of the *payload* from the other side. `message_lines` of the machine or profile counts both, for sender and
//!   receiver together.
//! - *The channel's lock.* Who uses a channel keeps others out for a part of the call (`locked_percent`), and for as long as
//!   the channel's lines are on their way to him. Others wait actively, as mutexes of the kernel do while the owner runs
//!   (`mutex_spin_on_owner`). So a channel whose users sit under different LLCs carries fewer messages.
//! - *Who comes again.* A pipe's lock is not handed to who waits for it: `mutex_unlock` leaves it free, and who had it may take it again while
//!   its line is still on its way to the other CPU. That happens to a share of the calls that grows with the distance ([`Again`]), so
//!   both sides of a pipe are not in step for long, and one of them comes to sleep.
//! - *Lines of a wakeup*, told in `lifecycle`.
//!
//! Who waits for room is not woken by every message that is read (Linux 7.2):
//!
//! - *Pipes* get room back by whole pages, and `pipe_read` wakes one writer when it frees a page of a full pipe; a writer that had to wait wakes
//!   the next one if the pipe is not full after its own message (`pipe_write`).
//! - *Unix sockets* wake all writers that wait, once no more than a quarter of the buffer is in use (`unix_writable`).
//!
//! Not modelled: owners preempted with the lock held; waiters that go to sleep; slab memory freed on another CPU; parts of a message, as every
//! message is sent and received whole; pages that are not full because the next message did not fit, but for what capacities say.

use warmcore_topology::{Costs, CpuId};
use warmcore_trace::{OverheadKind, TaskId};
use warmcore_workload::{ChannelId, ChannelKind};

use crate::engine::Engine;
use crate::interpreter::{BY_TASK, Done};
use crate::memory::{self, Memory, Side};
use crate::scheduler::{Scheduler, WakeFlags};
use crate::sync::{Channel, take_waiter};
use crate::task::{Activity, Stage, WaitReason};

/// Percent of a call during which the channel's lock is held: `pipe_write` and `pipe_read` hold `pipe->mutex` from before they look
/// at the buffer until the data is copied; Unix stream sockets allocate and copy outside of the queue's lock.
fn locked_percent(costs: &Costs, kind: ChannelKind) -> u64 {
    u64::from(match kind {
        ChannelKind::Pipe => costs.pipe_locked_percent,
        ChannelKind::Socket => costs.socket_locked_percent,
    })
}

/// Percent of a message's lines that are payload and its descriptor, which only the other side writes; the rest is the channel's
/// own: by assumption a fifth of a pipe's with messages of 100 bytes, and half of a socket's (the buffer's head and bookkeeping).
fn payload_percent(costs: &Costs, kind: ChannelKind) -> u64 {
    u64::from(match kind {
        ChannelKind::Pipe => costs.pipe_payload_percent,
        ChannelKind::Socket => costs.socket_payload_percent,
    })
}

/// Bytes of a page of memory.
const PAGE: u64 = 4096;

/// Room for data, and who is told when there is some again.
#[derive(Clone, Copy)]
struct Room {
    kind: ChannelKind,
    capacity_bytes: u64,
}

impl Room {
    fn of(channel: &warmcore_workload::Channel) -> Self {
        Self { kind: channel.kind, capacity_bytes: channel.capacity_bytes }
    }

    /// Bytes by which room comes back. Pipes of less than two pages, which no kernel has, are queues of bytes.
    fn unit_bytes(self) -> u64 {
        match self.kind {
            ChannelKind::Pipe if self.capacity_bytes >= 2 * PAGE => {
                self.capacity_bytes / self.capacity_bytes.div_ceil(PAGE)
            }
            _ => 1,
        }
    }

    fn left_bytes(self, state: &Channel) -> u64 {
        self.capacity_bytes - state.used_bytes - state.read_of_page_bytes
    }

    /// Whether a message of so many bytes begins a page: nothing is in the pipe, or the last page has no room for it (`pipe_write`).
    fn opens_page(self, state: &Channel, bytes: u64) -> bool {
        let in_last_page = (state.used_bytes + state.read_of_page_bytes) % self.unit_bytes();
        state.used_bytes == 0 || in_last_page == 0 || in_last_page + bytes > self.unit_bytes()
    }

    /// No page is free (`pipe_full`), though the last one may have room.
    fn is_full(self, state: &Channel) -> bool {
        let unit = self.unit_bytes();
        (state.used_bytes + state.read_of_page_bytes).div_ceil(unit) >= self.capacity_bytes / unit
    }

    /// Takes a message out. Whether one of the writers that wait is to be woken, or, for a socket, all.
    fn take(self, state: &mut Channel, bytes: u64) -> bool {
        let (was_full, unit) = (self.is_full(state), self.unit_bytes());
        state.used_bytes -= bytes;
        if self.kind == ChannelKind::Socket {
            return 4 * state.used_bytes <= self.capacity_bytes;
        }
        let read = state.read_of_page_bytes + bytes;
        state.read_of_page_bytes = if state.used_bytes == 0 { 0 } else { read % unit };
        let freed = read >= unit || state.used_bytes == 0;
        // Messages of several pages are written in parts by the kernel; here they wait for all of their room.
        let large = state.writers.front().is_some_and(|(_, bytes)| *bytes > unit);
        freed && (was_full || large)
    }
}

impl<S: Scheduler, M: Memory> Engine<'_, S, M> {
    /// The kernel's work for one side of a message of so many bytes, as the channel is now.
    pub(crate) fn message_ns(&self, channel: ChannelId, side: Side, bytes: u64) -> u64 {
        let room = Room::of(&self.workload.channels[channel.index()]);
        let opens_page = room.opens_page(&self.objects.channels[channel.index()], bytes);
        memory::message_ns(self.core.machine, room.kind, side, opens_page)
    }

    /// Pays for one side of a message. Where memory is modelled it is work: a busy sibling and cold caches make it slower,
    /// as they do the task's own code.
    fn pay_message(&mut self, id: TaskId, channel: ChannelId, side: Side, bytes: u64) -> bool {
        let cost_ns = self.message_ns(channel, side, bytes);
        if !M::MODELLED {
            return self.pay(id, cost_ns);
        }
        let owes = self.owes(id, cost_ns);
        if owes {
            let task = &mut self.core.tasks[id.index()];
            (task.activity, task.remaining_ns) = (Activity::Message, cost_ns);
        }
        owes
    }

    pub(crate) fn send_step(&mut self, cpu: CpuId, id: TaskId, channel: ChannelId, bytes: u64) -> Done {
        let room = Room::of(&self.workload.channels[channel.index()]);
        if self.pay_message(id, channel, Side::Sender, bytes) {
            return Done::Busy;
        }
        let has_waited = self.core.tasks[id.index()].stage == Stage::Woken;
        let state = &mut self.objects.channels[channel.index()];
        if bytes > room.left_bytes(state) {
            state.writers.push_back((id, bytes));
            return self.block_at_channel(cpu, id, channel, WaitReason::ChannelSpace(channel.0));
        }
        state.used_bytes += bytes;
        let last_reader = state.last_reader_cpu;
        state.last_writer_cpu = Some(cpu);
        let reader = take_waiter(&mut state.readers, state.used_bytes, true);
        // Who had to wait and leaves room behind passes the wakeup on (`wake_next_writer`).
        let passes_on =
            room.kind == ChannelKind::Pipe && (has_waited || room.unit_bytes() == 1) && !room.is_full(state);
        let left = room.left_bytes(state);
        let writer = if passes_on { take_waiter(&mut state.writers, left, false) } else { None };
        // The sender writes what the receiver read last. Part of the constant cost otherwise.
        if M::MODELLED {
            self.use_channel(cpu, id, channel, Side::Sender, last_reader);
        }
        self.wake_sync(reader);
        self.wake_sync(writer);
        Done::Next
    }

    /// Charges the task, which has just done its call's work on the CPU, with the lines it needed and with its wait for the
    /// channel's lock. `other_side`: where the payload's lines were used last.
    fn use_channel(&mut self, cpu: CpuId, id: TaskId, channel: ChannelId, side: Side, other_side: Option<CpuId>) {
        let machine = self.core.machine;
        let kind = self.workload.channels[channel.index()].kind;
        let now_ns = self.local_now(cpu);
        let mut lines_ns = 0;
        let state = &mut self.objects.channels[channel.index()];
        let again = state.again.take_for(cpu);
        let last_user = if again.is_some() { Some(cpu) } else { state.last_user_cpu };
        let payload = payload_percent(self.core.machine.costs(), kind);
        for (from, percent) in [(last_user, 100 - payload), (other_side, payload)] {
            let Some(from) = from else { continue };
            let cost_ns =
                self.memory.message_transfer_ns(kind, id, from, cpu) * percent * side.lines_percent() / 10_000;
            self.memory.transferred(id, from, cpu, cost_ns);
            lines_ns += cost_ns;
        }
        let locked_ns = memory::message_ns(machine, kind, side, false) * locked_percent(machine.costs(), kind) / 100;
        // The part of the call under the lock lies behind the task already; the lines come on top.
        let had_ns = now_ns.saturating_sub(locked_ns);
        let mut wait_ns;
        if let Some(free_at_ns) = again {
            wait_ns = free_at_ns.saturating_sub(had_ns);
            self.objects.channels[channel.index()].again.free_at_ns = now_ns + wait_ns + lines_ns;
        } else {
            wait_ns = self.objects.channels[channel.index()].lock_free_at_ns.saturating_sub(had_ns);
            let other_cpu = last_user.filter(|&from| from != cpu && wait_ns > 0 && kind == ChannelKind::Pipe);
            wait_ns += other_cpu.map_or(0, |from| self.others_come_again(channel, side, from, cpu));
            let state = &mut self.objects.channels[channel.index()];
            state.lock_free_at_ns = now_ns + wait_ns + lines_ns;
            state.last_user_cpu = Some(cpu);
        }
        self.core.charge(cpu, lines_ns + wait_ns, OverheadKind::Syscall);
        self.memory.waited_for_line(id, wait_ns);
    }

    /// A task waits on a CPU for a pipe's lock, which another CPU had last. Decides how often that one comes again before it, and returns
    /// the time that this takes.
    fn others_come_again(&mut self, channel: ChannelId, side: Side, from: CpuId, cpu: CpuId) -> u64 {
        let machine = self.core.machine;
        let line_ns = self.memory.lines_ns(from, cpu, 1);
        let call_ns = memory::message_ns(machine, ChannelKind::Pipe, side.other(), false);
        let state = &mut self.objects.channels[channel.index()];
        let calls = state.again.draw(line_ns, 2 * machine.costs().pipe_message_ns);
        state.again.grant(from, calls, state.lock_free_at_ns);
        u64::from(calls) * call_ns
    }

    /// The task has looked at the channel in vain and blocks. It has had the lines; the time that took is left out.
    fn block_at_channel(&mut self, cpu: CpuId, id: TaskId, channel: ChannelId, reason: WaitReason) -> Done {
        if M::MODELLED {
            self.objects.channels[channel.index()].last_user_cpu = Some(cpu);
        }
        self.block(id, reason)
    }

    /// Wakes a task with the hint that the waker may sleep soon (`wake_up_interruptible_sync_poll`).
    fn wake_sync(&mut self, task: Option<TaskId>) {
        if let Some(task) = task {
            self.wake(task, WakeFlags { sync: true, ..BY_TASK });
        }
    }

    pub(crate) fn receive_step(&mut self, cpu: CpuId, id: TaskId, channel: ChannelId, bytes: u64) -> Done {
        let room = Room::of(&self.workload.channels[channel.index()]);
        if self.pay_message(id, channel, Side::Receiver, bytes) {
            return Done::Busy;
        }
        let state = &mut self.objects.channels[channel.index()];
        if M::MODELLED {
            state.last_reader_cpu = Some(cpu);
        }
        if state.used_bytes < bytes {
            state.readers.push_back((id, bytes));
            // The kernel's reader would have taken the part that is there.
            self.wake_writers(channel, room);
            return self.block_at_channel(cpu, id, channel, WaitReason::ChannelData(channel.0));
        }
        let wakes = room.take(state, bytes);
        // Whoever leaves data behind passes the wakeup on (`wake_next_reader`).
        let reader = take_waiter(&mut state.readers, state.used_bytes, false);
        let last_writer = state.last_writer_cpu;
        if M::MODELLED {
            self.use_channel(cpu, id, channel, Side::Receiver, last_writer);
        } else if let Some(from) = last_writer {
            let cost = self.memory.message_transfer_ns(room.kind, id, from, cpu);
            self.core.charge(cpu, cost, OverheadKind::Syscall);
        }
        if wakes {
            self.wake_writers(channel, room);
        }
        self.wake_sync(reader);
        Done::Next
    }

    /// Wakes a writer that waits for room; of a socket all, as they do not wait exclusively.
    fn wake_writers(&mut self, channel: ChannelId, room: Room) {
        if room.kind == ChannelKind::Pipe {
            let state = &mut self.objects.channels[channel.index()];
            let left = room.left_bytes(state);
            let writer = take_waiter(&mut state.writers, left, true);
            return self.wake_sync(writer);
        }
        while let Some((writer, _)) = self.objects.channels[channel.index()].writers.pop_front() {
            self.wake_sync(Some(writer));
        }
    }
}
