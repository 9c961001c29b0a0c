//! Helpers: calls that are the same for all kinds of programs, by number (`enum bpf_func_id`).

use warmcore_bpf::maps::{MapFault, RingQuery};
use warmcore_bpf::{Callee, HostFunction, Inline, MapKind, Memory};

use crate::bytecode::host::{Host, LOADER_PID, clock_ns};
use crate::operations::Operation;

/// Numbers of errors that helpers and kfuncs give, negative as a register has them.
pub(super) const fn error(number: i64) -> u64 {
    (-number) as u64
}

pub(super) const EPERM: i64 = 1;
pub(super) const ENOENT: i64 = 2;
pub(super) const ENOMEM: i64 = 12;
pub(super) const EFAULT: i64 = 14;
pub(super) const EBUSY: i64 = 16;
pub(super) const EINVAL: i64 = 22;
pub(super) const EOPNOTSUPP: i64 = 95;

/// Defines functions that translated code calls, by a name or number: the host, as many of the five arguments as are named, a result of 64 bits.
macro_rules! functions {
    ($($key:pat => |$host:ident $(, $argument:ident)*| $body:expr;)*) => {
        |key| match key {
            $($key => {
                unsafe extern "C" fn function(frame: *mut warmcore_bpf::Frame, r1: u64, r2: u64, r3: u64, r4: u64, r5: u64) -> u64 {
                    // SAFETY: translated code is entered with a host only, and hands on what it was entered with; a frame is a host's first field.
                    #[allow(unused_variables)]
                    let $host: &mut Host = unsafe { &mut *frame.cast::<Host>() };
                    #[allow(unused_variables)]
                    let [$($argument,)* ..] = [r1, r2, r3, r4, r5];
                    $host.note(stringify!($key));
                    $body
                }
                const COUNT: u8 = <[&str]>::len(&[$(stringify!($argument)),*]) as u8;
                Some((function as HostFunction, COUNT))
            })*
            _ => None,
        }
    };
}
pub(super) use functions;

/// What the loader leaves where a branch is never taken (`docs/spec/bpf-runtime.md` section 5).
const POISON_RELOCATION: i32 = 0x0bad_2310;
const POISON_KFUNC: i32 = 2_002_000_000;

/// Whether the number of a helper is none, but a loader's mark of a branch that is never taken.
pub(super) fn is_mark(number: i32) -> bool {
    number == POISON_RELOCATION || number >= POISON_KFUNC
}

pub(super) fn helper(number: i32) -> Callee {
    match number {
        // Locks, where CPUs take turns.
        93 | 94 => return Callee::Inline(Inline::Nothing),
        5 | 125 | 160 => return Callee::Inline(Inline::Now),
        8 => return Callee::Inline(Inline::Cpu),
        POISON_RELOCATION => return Callee::Unreachable("a member that the kernel does not have".into()),
        POISON_KFUNC.. => return Callee::Unreachable("a kernel function that does not exist".into()),
        _ => {}
    }
    if let Some(callee) = super::callbacks::helper(number).or_else(|| super::dynptrs::helper(number)) {
        return callee;
    }
    match lookup(number) {
        Some((function, _)) if number == 1 || number == 195 => Callee::Lookup(function, number == 195),
        Some((function, count)) => Callee::Function(function, count),
        None => Callee::Unreachable(String::new()),
    }
}

fn lookup(number: i32) -> Option<(HostFunction, u8)> {
    let find: fn(i32) -> Option<(HostFunction, u8)> = functions! {
        1 => |host, map, key| host.maps.lookup(map, key, host.frame.cpu as u32);
        2 => |host, map, key, value, flags| host.map_update(map, key, value, flags);
        3 => |host, map, key| host.map_delete(map, key);
        4 | 112 | 113 => |host, to, bytes, from| host.probe_read(to, bytes as u32, from);
        6 => |host, format, bytes, a, b, c| host.print_line(format, &[a, b, c]);
        177 => |host, format, bytes, values, length| host.print_values(format, values, length);
        7 => |host| host.random_u32();
        // Programs run where no user is.
        15 => |host| 0;
        16 => |host, to, room| host.current_comm(to, room as u32);
        42 => |host| u64::from(host.kept.node_of_cpu[host.frame.cpu as usize]);
        80 => |host| host.group_id(host.group_of(host.current_task()));
        87 => |host, map, value, flags| host.map_push(map, value, flags);
        88 => |host, map, value| host.map_first(map, value, true);
        89 => |host, map, value| host.map_first(map, value, false);
        120 => |host, device, inode, to, bytes| host.pid_tgid_to(to, bytes as u32);
        14 => |host| host.current_pid_tgid();
        35 | 158 => |host| host.current_task();
        45 | 114 | 115 => |host, to, bytes, from| host.probe_read_text(to, bytes as u32, from);
        22 => |host, map, flags| host.perf_event_read(map, flags);
        55 => |host, map, flags, to, bytes| host.perf_event_read_value(map, flags, to, bytes as u32);
        56 => |host, context, to, bytes| host.perf_prog_read_value(to, bytes as u32);
        118 => |host| host.kernel().map_or(0, |kernel| clock_ns(kernel) / kernel.tick_ns());
        130 => |host, map, data, bytes| host.ring_output(map, data, bytes);
        131 => |host, map, bytes| host.maps.ring_reserve(map, bytes);
        132 => |host, record| { host.maps.ring_submit(record, false); 0 };
        133 => |host, record| { host.maps.ring_submit(record, true); 0 };
        134 => |host, map, query| RingQuery::from_number(query).and_then(|query| host.maps.ring_query(map, query)).unwrap_or(0);
        153 => |host, variable, cpu| host.on_cpu(variable, cpu as u32);
        154 => |host, variable| host.on_cpu(variable, host.frame.cpu as u32);
        156 => |host, map, task, value, flags| host.task_storage(map, task, flags);
        157 => |host, map, task| host.task_storage_delete(map, task);
        165 => |host, to, bytes, format, values, length| host.print_to(to, bytes, format, values, length);
        169 => |host, timer, map| host.timer_init(timer, map);
        170 => |host, timer, callback| host.timer_set_callback(timer, callback);
        171 => |host, timer, delay_ns, flags| host.timer_start(timer, delay_ns, flags);
        172 => |host, timer| host.timer_cancel(timer);
        182 => |host, left, bytes, right| host.compare_text(left, bytes as u32, right);
        183 => |host, context, number, to| host.func_arg(context, number as u32, to);
        184 => |host, context, to| host.func_ret(context, to);
        185 => |host, context| host.func_arg_cnt(context);
        194 => |host, place, value| {
            let old = host.maps.memory.load_u64(place);
            host.store_u64(place, value);
            old
        };
        195 => |host, map, key, cpu| host.maps.lookup(map, key, cpu as u32);
        210 => |host, map, group, value, flags| host.group_storage(map, group, flags);
        211 => |host, map, group| match host.kept.groups.at(group) {
            Some(owner) if host.maps.delete_storage(map, owner) => 0,
            _ => error(ENOENT),
        };
    };
    find(number)
}

impl Host {
    fn key(&self, map: u64, key: u64) -> Option<Vec<u8>> {
        let bytes = self.maps.get(map)?.spec.key_bytes;
        self.maps.memory.read(key, u64::from(bytes)).map(<[u8]>::to_vec)
    }

    fn map_update(&mut self, map: u64, key: u64, value: u64, flags: u64) -> u64 {
        let cpu = self.frame.cpu as u32;
        let update = |host: &mut Self| {
            let key = host.key(map, key).ok_or(MapFault::Invalid)?;
            let bytes = host.maps.get(map).ok_or(MapFault::Invalid)?.spec.value_bytes;
            let value = host.maps.memory.read(value, u64::from(bytes)).ok_or(MapFault::Invalid)?.to_vec();
            host.maps.update(map, &key, &value, flags, Some(cpu))
        };
        update(self).map_or_else(|fault| error(fault as i64), |()| 0)
    }

    fn map_delete(&mut self, map: u64, key: u64) -> u64 {
        let delete = |host: &mut Self| {
            let key = host.key(map, key).ok_or(MapFault::Invalid)?;
            host.maps.delete(map, &key)
        };
        delete(self).map_or_else(|fault| error(fault as i64), |()| 0)
    }

    fn map_push(&mut self, map: u64, value: u64, flags: u64) -> u64 {
        let push = |host: &mut Self| {
            let bytes = host.maps.get(map).ok_or(MapFault::Invalid)?.spec.value_bytes;
            let value = host.maps.memory.read(value, u64::from(bytes)).ok_or(MapFault::Invalid)?.to_vec();
            host.maps.push(map, &value, flags)
        };
        push(self).map_or_else(|fault| error(fault as i64), |()| 0)
    }

    /// The first value of a queue or stack, which an empty one leaves as zeros; of a filter whether the value was there.
    fn map_first(&mut self, map: u64, to: u64, take: bool) -> u64 {
        let first = |host: &mut Self| {
            let spec = &host.maps.get(map).ok_or(MapFault::Invalid)?.spec;
            let (kind, bytes) = (spec.kind, u64::from(spec.value_bytes));
            if kind == MapKind::BloomFilter {
                let value = host.maps.memory.read(to, bytes).ok_or(MapFault::Invalid)?;
                return host.maps.test(map, value);
            }
            let first = host.maps.first(map, take);
            let place = host.maps.memory.write(to, bytes).ok_or(MapFault::Invalid)?;
            match first {
                Ok(value) => place.copy_from_slice(&value),
                Err(fault) => {
                    place.fill(0);
                    return Err(fault);
                }
            }
            Ok(())
        };
        first(self).map_or_else(|fault| error(fault as i64), |()| 0)
    }

    fn current_comm(&mut self, to: u64, room: u32) -> u64 {
        let at = self.current_task() + self.kept.layout.comm;
        let name = self.maps.memory.text(at, 16);
        if room == 0 {
            return error(EINVAL);
        }
        self.store_text(to, &name, u64::from(room));
        0
    }

    /// `struct bpf_pidns_info`: there is one name space.
    fn pid_tgid_to(&mut self, to: u64, bytes: u32) -> u64 {
        if bytes != 8 {
            return error(EINVAL);
        }
        let both = self.current_pid_tgid();
        self.store_u64(to, both);
        0
    }

    fn probe_read(&mut self, to: u64, bytes: u32, from: u64) -> u64 {
        let bytes = u64::from(bytes);
        if self.maps.memory.copy_within(from, to, bytes) {
            return 0;
        }
        if let Some(target) = self.maps.memory.write(to, bytes) {
            target.fill(0);
        }
        error(EFAULT)
    }

    fn probe_read_text(&mut self, to: u64, room: u32, from: u64) -> u64 {
        if room == 0 {
            return 0;
        }
        let length = self.maps.memory.until_zero(from, u64::from(room) - 1).len() as u64;
        let is_read = Memory::contains(from, 1) && self.maps.memory.copy_within(from, to, length);
        let end = if is_read { length } else { 0 };
        match self.maps.memory.write(to + end, 1) {
            Some(byte) => byte[0] = 0,
            None => return error(EFAULT),
        }
        if is_read { length + 1 } else { error(EFAULT) }
    }

    /// Xorshift: any generator will do, as the kernel's promises nothing.
    pub(super) fn random_u32(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 32
    }

    pub(super) fn current_task(&self) -> u64 {
        let task = self.leaves.or_else(|| self.kernel().map(|kernel| kernel.runs_on(kernel.this_cpu())));
        self.task_address(task.unwrap_or(warmcore_trace::TaskId::IDLE))
    }

    /// Where a program is set up and `init` runs, it is in the loader's process, whose number programs keep.
    fn current_pid_tgid(&self) -> u64 {
        if self.kernel().is_none_or(|kernel| kernel.state.operation == Operation::Init) {
            return u64::from(LOADER_PID) << 32 | u64::from(LOADER_PID);
        }
        let task = self.current_task();
        let layout = &self.kept.layout;
        let load = |member| u64::from(self.maps.memory.load_u32(task + member));
        load(layout.tgid) << 32 | load(layout.pid)
    }

    fn ring_output(&mut self, map: u64, data: u64, bytes: u64) -> u64 {
        let record = self.maps.ring_reserve(map, bytes);
        if record == 0 {
            return error(EBUSY);
        }
        let result = self.probe_read(record, bytes as u32, data);
        self.maps.ring_submit(record, false);
        result
    }

    fn task_storage(&mut self, map: u64, task: u64, flags: u64) -> u64 {
        match self.storage_owner(task) {
            Some(owner) => self.maps.storage(map, owner, flags & 1 != 0),
            None => 0,
        }
    }

    fn task_storage_delete(&mut self, map: u64, task: u64) -> u64 {
        match self.storage_owner(task) {
            Some(owner) if self.maps.delete_storage(map, owner) => 0,
            _ => error(ENOENT),
        }
    }

    fn group_storage(&mut self, map: u64, group: u64, flags: u64) -> u64 {
        self.kept.groups.at(group).map_or(0, |owner| self.maps.storage(map, owner, flags & 1 != 0))
    }

    fn print_to(&mut self, to: u64, bytes: u64, format: u64, values: u64, length: u64) -> u64 {
        let text = super::text::format(&self.maps.memory, format, values, length);
        if bytes > 0 {
            self.store_text(to, &text, bytes.min(text.len() as u64 + 1));
        }
        text.len() as u64 + 1
    }

    fn compare_text(&self, left: u64, bytes: u32, right: u64) -> u64 {
        let byte = |at: u64| self.maps.memory.read(at, 1).map_or(0, |bytes| bytes[0]);
        for at in 0..u64::from(bytes) {
            let (left, right) = (byte(left + at), byte(right + at));
            if left != right {
                return (i64::from(left) - i64::from(right)) as u64;
            }
            if left == 0 {
                break;
            }
        }
        0
    }

    /// The task of a number that only sched_ext gives (`p->scx.tid`), which begins with 1.
    pub(super) fn task_by_tid(&self, tid: u64) -> u64 {
        let number = tid.checked_sub(1).filter(|&number| number < u64::from(self.task_count()));
        let task = number.map(|number| warmcore_trace::TaskId(number as u32)).filter(|&task| self.lives(task));
        task.map_or(0, |task| self.task_address(task))
    }
}
