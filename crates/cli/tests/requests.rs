//! Latencies of requests: what a recording of a service and its replay tell.

use crate::common::{Scratch, can_record};
use warmcore_testing::skip;

/// A server that works for 1 ms, sleeps for 2 ms and answers, and its client, which asks 110 times.
const SERVICE: &str = r#"
use POSIX; use Socket; use Time::HiRes qw(time sleep);
socketpair(my $one, my $other, AF_UNIX, SOCK_STREAM, 0) or die;
# Numbers that were no other file before: a recorder that comes late knows them, too.
POSIX::dup2(fileno $one, 40); POSIX::dup2(fileno $other, 41);
open(my $client, "+<&=40") or die; open(my $server, "+<&=41") or die;
close $one; close $other;
if (fork == 0) {
    close $client;
    while (sysread $server, my $request, 1) {
        my $end = time + 0.001; 1 while time < $end;
        sleep 0.002;
        syswrite $server, $request;
    }
    exit;
}
close $server; sleep 0.3;
for (1 .. 110) { syswrite $client, "x"; sysread $client, my $answer, 1; sleep 0.003; }
"#;

#[test]
fn the_latency_of_requests_is_that_which_their_client_waits_and_is_measured_in_the_replay() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let ran = scratch.command("record --calls --json --out asked --").args(["perl", "-e", SERVICE]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if String::from_utf8_lossy(&ran.stderr).contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let service = &document["fidelity"]["service"];
    let (count, median) = (&service["latency"]["count"], service["latency"]["median_ns"].as_u64().unwrap());
    let [count, awake] = [count, &service["found_awake"]].map(|number| number.as_u64().unwrap());
    // On a busy computer the server may come to its next request before it has slept.
    assert!(count >= 20 && (100..=110).contains(&(count + awake)), "{service}");
    assert_eq!(service["latency"]["p99_ns"].as_u64().is_some(), count >= 100, "{service}");
    assert!(service["latency"]["p99_ns"].as_u64().is_none_or(|p99| p99 >= median) && median >= 3_000_000, "{service}");
    // The client's time has the same request in it; both are edges of buckets.
    let clients = service["clients"]["median_ns"].as_u64().unwrap();
    assert!(median as f64 <= 1.02 * clients as f64, "{service}");
    let trial = std::fs::read_to_string(scratch.path("asked/trials/s0-t0000.json")).unwrap();
    let trial: serde_json::Value = serde_json::from_str(&trial).unwrap();
    assert_eq!(trial["measures"]["recorder_request_p50_ns"].as_f64(), Some(median as f64), "a metric of the recording");
    // Tracing keeps no counters of domains.
    scratch.run("explain schedstat:asked").exits_with(2).complains("has no accounts of domains");
    let replayed = scratch.run("replay asked/recording.dat --json -o replay.json").exits_with(0).out;
    let document: serde_json::Value = serde_json::from_str(&replayed).unwrap();
    let service = &document["fidelity"]["service"];
    let of_replay = &service["replayed"];
    assert_eq!(of_replay["count"], service["measured"], "{service}");
    assert!(of_replay["median_ns"].as_u64() >= Some(2_000_000), "{service}");
}
