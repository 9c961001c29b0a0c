//! Maps by the system call.

use std::sync::Arc;

use warmcore_bpf::maps::MapFault;
use warmcore_bpf::{MapKind, MapSpec};
use warmcore_scx::bytecode::{Host, Need, ObjectError};

use super::commands::{Failure, Fields, command};
use super::{Answers, Reply, Thing};
use crate::process::Call;

impl Answers {
    pub(super) fn map_create(&mut self, host: &mut Host, call: &Call, fields: &Fields) -> Result<Reply, Failure> {
        let need = Need::of_map(&self.kernel.btf, fields.u32(0));
        self.needs.insert(need);
        // So that a loader goes on to what else it needs. Its scheduler is not run.
        let kind = MapKind::from_number(fields.u32(0)).unwrap_or(MapKind::NotModelled);
        let value_type = fields.u32(56);
        let special = match self.find(call, fields.u32(48)) {
            Some(Thing::Btf(btf)) if value_type != 0 => match btf.special_fields(value_type) {
                Some(special) => special,
                // As the kernel does.
                None => return Ok(Reply::Error(libc::E2BIG)),
            },
            _ => Vec::new(),
        };
        let spec = MapSpec {
            name: fields.name(28),
            kind,
            key_bytes: fields.u32(4),
            value_bytes: fields.u32(8),
            entries: fields.u32(12),
            flags: fields.u32(16),
            // Of a table of operations the type of its value.
            extra: if kind == MapKind::StructOps { u64::from(fields.u32(60)) } else { fields.u64(64) },
            special,
        };
        if kind == MapKind::Arena && host.maps.iter().any(|map| map.spec.kind == MapKind::Arena) {
            // A probe made one; only its address counts, and the real one asks for the same.
            let probe =
                host.maps.iter().position(|map| map.spec.kind == MapKind::Arena && map.spec.entries == spec.entries);
            if let Some(handle) = probe.map(|index| index as u64 + 1)
                && let Some(map) = host.maps.get(handle)
            {
                let file = Arc::clone(&map.file);
                return Ok(Reply::New(Thing::Map { handle, value: Vec::new() }, Some(file)));
            }
        }
        let handle = host.maps.create(spec).map_err(ObjectError::from)?;
        let file = host.maps.get(handle).map(|map| Arc::clone(&map.file));
        Ok(Reply::New(Thing::Map { handle, value: Vec::new() }, file))
    }

    pub(super) fn map_element(
        &mut self,
        host: &mut Host,
        call: &Call,
        number: u64,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        let Some(Thing::Map { handle, .. }) = self.find(call, fields.u32(0)) else {
            return Ok(Reply::Error(libc::EBADF));
        };
        let handle = *handle;
        let Some(map) = host.maps.get(handle) else { return Ok(Reply::Error(libc::EBADF)) };
        let (kind, bytes) = (map.spec.kind, map.spec.value_bytes as usize);
        if kind == MapKind::PerfEventArray {
            return self.event_element(host, call, handle, number, fields);
        }
        if kind.is_keyless() {
            return keyless_element(host, call, handle, bytes, number, fields);
        }
        let key_at = fields.u64(8);
        let key = if key_at == 0 { None } else { Some(call.read(key_at, map.spec.key_bytes as usize)?) };
        let per_cpu = kind.is_per_cpu();
        let all = if per_cpu { bytes.next_multiple_of(8) * self.machine.cpu_count() } else { bytes };
        let result = match (number, key) {
            (command::MAP_GET_NEXT_KEY, key) => match host.maps.next_key(handle, key.as_deref()) {
                Some(next) => {
                    call.write(fields.u64(16), &next)?;
                    Ok(())
                }
                None => Err(MapFault::NoEntry),
            },
            (_, None) => Err(MapFault::Invalid),
            (command::MAP_UPDATE_ELEM, Some(key)) => {
                let value = call.read(fields.u64(16), all)?;
                if kind == MapKind::StructOps {
                    self.keep_value(call, fields.u32(0), value);
                    Ok(())
                } else if kind.holds_maps() {
                    let descriptor = Fields(value).u32(0);
                    let Some(&Thing::Map { handle: inner, .. }) = self.find(call, descriptor) else {
                        return Ok(Reply::Error(libc::EBADF));
                    };
                    host.maps.hold(handle, &key, inner)
                } else {
                    host.maps.update(handle, &key, &value, fields.u64(24), None)
                }
            }
            (command::MAP_DELETE_ELEM, Some(key)) => host.maps.delete(handle, &key),
            (_, Some(key)) => {
                let cpus = if per_cpu { self.machine.cpu_count() as u32 } else { 1 };
                let mut value = Vec::with_capacity(all);
                for cpu in 0..cpus {
                    let found = host.maps.find(handle, &key, cpu);
                    let part = found.and_then(|place| host.maps.memory.read(place, bytes as u64));
                    match part {
                        Some(part) => value.extend_from_slice(part),
                        None => return Ok(Reply::Error(libc::ENOENT)),
                    }
                    value.resize(value.len().next_multiple_of(8).min(all), 0);
                }
                call.write(fields.u64(16), &value)?;
                if number == command::MAP_LOOKUP_AND_DELETE_ELEM { host.maps.delete(handle, &key) } else { Ok(()) }
            }
        };
        Ok(result.map_or_else(|fault| Reply::Error(fault as i32), |()| Reply::Value(0)))
    }

    /// The commands on an array of performance events, which hold what descriptors stand for.
    fn event_element(
        &mut self,
        host: &mut Host,
        call: &Call,
        handle: u64,
        number: u64,
        fields: &Fields,
    ) -> Result<Reply, Failure> {
        let key_at = fields.u64(8);
        let key = if key_at == 0 { None } else { Some(call.read(key_at, 4)?) };
        let result = match (number, &key) {
            (command::MAP_GET_NEXT_KEY, key) => match host.maps.next_key(handle, key.as_deref()) {
                Some(next) => call.write(fields.u64(16), &next).map(|()| Ok(()))?,
                None => Err(libc::ENOENT),
            },
            (_, None) => Err(libc::EINVAL),
            (command::MAP_UPDATE_ELEM, Some(key)) => {
                let descriptor = Fields(call.read(fields.u64(16), 4)?).u32(0);
                let index = Fields(key.clone()).u32(0);
                match self.find(call, descriptor) {
                    Some(Thing::Counter(opened)) => host.hold_counter(handle, index, opened.id, fields.u64(24)),
                    // A buffer of records, to which nothing is written.
                    Some(Thing::Other) => Ok(()),
                    Some(_) => Err(libc::EINVAL),
                    None => Err(libc::EBADF),
                }
            }
            (command::MAP_DELETE_ELEM, Some(key)) => host.maps.delete(handle, key).map_err(|fault| fault as i32),
            _ => Err(MapFault::NotSupported as i32),
        };
        Ok(result.map_or_else(Reply::Error, |()| Reply::Value(0)))
    }

    /// Keeps the value of a table of operations.
    fn keep_value(&mut self, call: &Call, descriptor: u32, new: Vec<u8>) {
        let known = call.inode(descriptor).and_then(|inode| self.things.get_mut(&inode));
        if let Some((Thing::Map { value, .. }, _)) = known {
            *value = new;
        }
    }
}

/// The commands on a map without keys: put something into it, take or see the first.
fn keyless_element(
    host: &mut Host,
    call: &Call,
    handle: u64,
    bytes: usize,
    number: u64,
    fields: &Fields,
) -> Result<Reply, Failure> {
    let at = fields.u64(16);
    let result = match number {
        command::MAP_UPDATE_ELEM => {
            let value = call.read(at, bytes)?;
            host.maps.push(handle, &value, fields.u64(24))
        }
        command::MAP_LOOKUP_ELEM | command::MAP_LOOKUP_AND_DELETE_ELEM => {
            match host.maps.first(handle, number == command::MAP_LOOKUP_AND_DELETE_ELEM) {
                Ok(value) => {
                    call.write(at, &value)?;
                    Ok(())
                }
                Err(fault) => Err(fault),
            }
        }
        _ => Err(MapFault::Invalid),
    };
    Ok(result.map_or_else(|fault| Reply::Error(fault as i32), |()| Reply::Value(0)))
}
