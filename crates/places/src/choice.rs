//! A place with its settings as one text: `sim`, `vm:kernel=FILE,virtual-time`, `host:cpus=one-socket,set-cpus=partition`.
//!
//! After the place's name stand its settings, with commas between them. A value with several parts has `+` between those.

use std::str::FromStr;

use crate::host::settings::Settings;
use crate::vm::select::Choice;
use crate::{host, offered, place::PlaceKind, vm};

/// A place with its settings.
#[derive(Clone, Debug)]
pub struct PlaceChoice {
    /// Which.
    pub kind: &'static PlaceKind,
    /// How guests are made, of `vm`.
    pub guests: Choice,
    /// How trials on this computer are made, of `host`.
    pub host: Settings,
}

impl FromStr for PlaceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, settings) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        let kind = offered().find(|kind| kind.name == name).ok_or_else(|| {
            let known: Vec<&str> = offered().map(|kind| kind.name).collect();
            format!("there is no place `{name}`; there are {}", known.join(", "))
        })?;
        let mut choice = Self { kind, guests: Choice::default(), host: Settings::default() };
        match settings {
            None => {}
            Some(settings) if name == vm::place::KIND.name => choice.guests = settings.parse()?,
            Some(settings) if name == host::place::KIND.name => choice.host = settings.parse()?,
            Some(_) => return Err(format!("the place `{name}` has no settings")),
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::state::Means;

    #[test]
    fn a_place_is_its_name_and_its_settings() {
        assert_eq!("sim".parse::<PlaceChoice>().unwrap().kind.name, "sim");
        let vm: PlaceChoice = "vm:kernel=/boot/a,virtual-time=3,boot-limit=40min,trace-buffer=64".parse().unwrap();
        let guests = vm.guests;
        assert_eq!((guests.virtual_time, guests.buffer_kib), (Some(3), Some(64 << 10)));
        assert_eq!((guests.kernel, guests.limit), (Some("/boot/a".into()), Some(Duration::from_secs(2400))));
        let text = "host:cpus=0-3+8,cpus=all,set-cpus=partition,governor=powersave+performance,numa-balancing=on+off,\
                    set=/proc/sys/vm/swappiness=0,replace,warm-up-rounds=0";
        let host = text.parse::<PlaceChoice>().unwrap().host;
        assert_eq!(host.cpus, ["0-3,8", "all"]);
        assert_eq!((host.means, host.numa_balancing), (Means::Partition, vec![true, false]));
        assert_eq!(host.governor, ["powersave", "performance"]);
        assert_eq!(host.files, [("/proc/sys/vm/swappiness".to_owned(), "0".to_owned())]);
        assert_eq!((host.replace, host.warm_up_rounds), (true, 0));
    }

    #[test]
    fn what_is_no_setting_of_a_place_is_refused_with_what_is() {
        for (text, wanted) in [
            ("moon", "there is no place `moon`; there are sim, vm, host"),
            ("sim:kernel=x", "the place `sim` has no settings"),
            ("vm:kernal=x", "did you mean `kernel`?"),
            ("vm:cpus=3", "a guest has no setting `cpus`; there are kernel"),
            ("vm:kernel", "kernel needs a value"),
            ("vm:real-time=1", "real-time takes no value"),
            ("vm:", "a setting is missing"),
            ("vm:kernel=a,,real-time", "a setting is missing"),
            ("vm:config=", "config= has no value"),
            ("vm:config=a", "there is none"),
            ("vm:virtual-time=11", "not a number from 0 to 10"),
            ("vm:real-time,virtual-time", "exclude each other"),
            ("vm:kernel=a,kernel=b", "kernel is set twice"),
            ("host:replace,replace", "replace is set twice"),
            ("vm:boot-limit=soon", "boot-limit=soon: "),
            ("vm:trace-buffer=0", "not a number from 1 to 1024"),
            ("host:set-cpus=maybe", "it is one of affinity, partition, offline"),
            ("host:numa-balancing=on+x", "numa-balancing=x: it is one of on, off"),
            ("host:set=/etc/passwd=x", "not a setting of the kernel"),
            ("host:set=/sys/../etc/passwd=x", "not a setting of the kernel"),
            ("host:set=/proc/sys/vm/x", "is not PATH=VALUE"),
        ] {
            let error = text.parse::<PlaceChoice>().unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
