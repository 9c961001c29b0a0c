//! Latencies of requests: what a recording of a service and its replay tell.

use std::process::{Command, Output, Stdio};

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
    let words = "record --calls --json --force --out asked --";
    let record = || scratch.command(words).args(["perl", "-e", SERVICE]).output().unwrap();
    let whole = |ran: &Output| {
        let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap_or_default();
        let service = &document["fidelity"]["service"];
        [&service["latency"]["count"], &service["clients"]["count"]].map(serde_json::Value::as_u64) == [Some(110); 2]
    };
    let mut ran = record();
    // On a busy computer the server may come to its next request before it has slept, and the client to its answer: those are in the times
    // of one of the two only.
    for _ in 0..5 {
        if !ran.status.success() || whole(&ran) {
            break;
        }
        ran = record();
    }
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if String::from_utf8_lossy(&ran.stderr).contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let service = &document["fidelity"]["service"];
    let (count, median) = (&service["latency"]["count"], service["latency"]["median_ns"].as_u64().unwrap());
    let [count, awake] = [count, &service["found_awake"]].map(|number| number.as_u64().unwrap());
    assert!(count >= 20 && (100..=110).contains(&(count + awake)), "{service}");
    assert_eq!(service["latency"]["p99_ns"].as_u64().is_some(), count >= 100, "{service}");
    assert!(service["latency"]["p99_ns"].as_u64().is_none_or(|p99| p99 >= median) && median >= 3_000_000, "{service}");
    // Each of the client's times has a request in it, so the medians of all are in that order; both are edges of buckets.
    let clients = service["clients"]["median_ns"].as_u64().unwrap();
    assert!(!whole(&ran) || median as f64 <= 1.02 * clients as f64, "{service}");
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

/// A server with one thread and 1 ms of work for each request, on 32 connections.
const SERVER: &str = r#"
use POSIX; use Socket; use Time::HiRes 'time';
socket(my $listens, PF_INET, SOCK_STREAM, 0) or die; bind $listens, sockaddr_in(0, INADDR_LOOPBACK) or die; listen $listens, 50;
my ($port) = sockaddr_in getsockname $listens;
open my $file, '>', 'port.new'; print $file $port; close $file; rename 'port.new', 'port';
my %open;
# Numbers that were no other file before.
for my $number (40 .. 71) {
    accept my $socket, $listens; POSIX::dup2(fileno $socket, $number); close $socket;
    open my $kept, "+<&=$number" or die; $open{$number} = $kept;
}
while (%open) {
    my $ready = ''; vec($ready, $_, 1) = 1 for keys %open;
    select $ready, undef, undef, undef;
    for my $number (sort { $a <=> $b } grep { vec $ready, $_, 1 } keys %open) {
        sysread $open{$number}, my $request, 100 or delete $open{$number}, next;
        my $end = time + 0.001; 1 while time < $end;
        syswrite $open{$number}, $request;
    }
}
"#;

/// Its client, which waits for no answer: 400 requests, 5 ms apart on average (exponential). It prints median and p99 of what they took.
const CLIENT: &str = r#"
use Socket; use Time::HiRes qw(time sleep);
for (1 .. 2000) { last if -e 'port'; sleep 0.01 }
open my $file, '<', 'port' or die; my $port = <$file>;
my @free = map { socket my $socket, PF_INET, SOCK_STREAM, 0; connect $socket, sockaddr_in($port, INADDR_LOOPBACK) or die; $socket } 1 .. 32;
sleep 0.5; srand 7;
my ($due, $asked) = (time, 0); my (%busy, @took);
while (@took < 400) {
    if ($asked < 400 && @free && time >= $due) {
        my $socket = shift @free; $busy{fileno $socket} = [$socket, time]; syswrite $socket, 'x';
        $asked++; $due -= 0.005 * log(1 - rand); next;
    }
    my $ready = ''; vec($ready, $_, 1) = 1 for keys %busy;
    my $rest = $asked < 400 && @free ? $due - time : 1;
    select $ready, undef, undef, $rest > 0 ? $rest : 0;
    for my $number (grep { vec $ready, $_, 1 } keys %busy) {
        my ($socket, $began) = @{delete $busy{$number}};
        sysread $socket, my $answer, 100; push @took, time - $began; push @free, $socket;
    }
}
@took = sort { $a <=> $b } @took; printf "%d %d\n", 1e9 * $took[199], 1e9 * $took[395];
"#;

/// A recording of the server, and what the client printed. Once more where the computer was so busy that all 32 connections waited for an
/// answer at a time: the client waits then, too, which makes it another one.
fn record_undisturbed(scratch: &Scratch) -> (Output, String) {
    const QUEUES_NS: f64 = 32e6;
    let once = || {
        let perl = |program| ["-e", program];
        let client =
            Command::new("perl").args(perl(CLIENT)).current_dir(scratch.path("")).stdout(Stdio::piped()).spawn();
        let client = client.unwrap();
        let ran =
            scratch.command("record --calls --json --out asked --").arg("perl").args(perl(SERVER)).output().unwrap();
        (ran, String::from_utf8(client.wait_with_output().unwrap().stdout).unwrap())
    };
    for _ in 0..4 {
        let (ran, client) = once();
        let p99_ns: Option<f64> = client.split_whitespace().nth(1).and_then(|word| word.parse().ok());
        if !ran.status.success() || p99_ns.is_some_and(|ns| ns < QUEUES_NS) {
            return (ran, client);
        }
        for left in ["port", "asked"] {
            let path = scratch.path(left);
            let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
        }
    }
    once()
}

#[test]
fn requests_of_clients_that_are_not_recorded_come_by_themselves_and_queue() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let (ran, client) = record_undisturbed(&scratch);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if String::from_utf8_lossy(&ran.stderr).contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    // Tracefs is there only while something is recorded.
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).take(2).map_while(|number| number.parse().ok()).collect();
    if version < vec![6, 3] {
        skip!("this kernel does not say when a socket has something to receive (Linux 6.3)");
    }
    let service = |document: &[u8]| -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(document).unwrap()["fidelity"]["service"].clone()
    };
    let number =
        |service: &serde_json::Value, of: &str| service.pointer(of).and_then(serde_json::Value::as_u64).unwrap();
    let recorded = service(&ran.stdout);
    // A recorder that comes late on a busy computer knows the first requests' sockets late.
    let (count, awake) = (number(&recorded, "/latency/count"), number(&recorded, "/found_awake"));
    assert!(count >= 200 && count + awake <= 400, "{recorded}");
    // A client's time has the request in it; recorded numbers are upper edges of buckets.
    let of_client: Vec<f64> = client.split_whitespace().map(|word| word.parse().unwrap()).collect();
    let [median_ns, p99_ns] = ["/latency/median_ns", "/latency/p99_ns"].map(|of| number(&recorded, of) as f64);
    let all = count == 400;
    assert!(!all || median_ns <= 1.02 * of_client[0] && p99_ns <= 1.02 * of_client[1], "{recorded}, client {client}");
    assert!(median_ns >= 1e6 && p99_ns > 1.2 * median_ns, "some find the server busy: {recorded}");
    let replayed = service(scratch.run("replay asked --json -o replay.json").exits_with(0).out.as_bytes());
    assert_eq!((number(&replayed, "/measured"), number(&replayed, "/open")), (count, count), "{replayed}");
    // Whatever delayed the server that is not in the replay is not in its requests either.
    let [alone_median_ns, alone_p99_ns] =
        ["/replayed/median_ns", "/replayed/p99_ns"].map(|of| number(&replayed, of) as f64);
    assert!(alone_median_ns <= 1.05 * median_ns && alone_p99_ns <= 1.05 * p99_ns, "{replayed}");
    assert!(alone_median_ns >= 3e5 && alone_p99_ns > 1.2 * alone_median_ns, "{replayed}");
    // Elapsed time is that of the arrivals; the verdict is about the requests.
    let verdict =
        scratch.run("compare -m 1s1n1l2c1t -w replay.json -s eevdf,rr -n 2 --json --out verdict").exits_with(0).out;
    assert!(verdict.contains("recorder_request_p99_ns"), "{verdict}");
}

/// Four processes that were forked before take connections from one socket, and work for 2 ms for each; a client asks 80 times, every 4 ms.
const PREFORKED: &str = r#"
use POSIX; use IO::Socket::INET; use Time::HiRes qw(time sleep);
my $listener = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 64) or die;
my @workers = map {
    my $worker = fork;
    if ($worker == 0) {
        while (my $connection = $listener->accept) {
            sysread $connection, my $request, 1;
            my $end = time + 0.002; 1 while time < $end;
            syswrite $connection, $request;
            close $connection;
        }
        exit;
    }
    $worker
} 1 .. 4;
sleep 0.3;
for (1 .. 80) {
    my $connection = IO::Socket::INET->new(PeerAddr => "127.0.0.1", PeerPort => $listener->sockport) or die;
    syswrite $connection, "x"; sysread $connection, my $answer, 1;
    close $connection; sleep 0.004;
}
kill TERM => @workers;
"#;

#[test]
fn processes_that_take_connections_from_one_socket_are_a_pool() {
    let scratch = Scratch::new();
    skip!(unless can_record());
    let ran = scratch.command("record --calls --json --out run --").args(["perl", "-e", PREFORKED]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    if String::from_utf8_lossy(&ran.stderr).contains("CONFIG_FTRACE_SYSCALLS") {
        skip!("this kernel traces no system calls (CONFIG_FTRACE_SYSCALLS)");
    }
    let document: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let pools = &document["fidelity"]["pools"];
    assert_eq!(pools.as_array().map(Vec::len), Some(1), "{pools}");
    let pool = &pools[0];
    assert_eq!((pool["workers"].as_array().unwrap().len(), &pool["replayed"]), (4, &true.into()), "{pool}");
    assert!(pool["evidence"]["object"].as_str().unwrap().starts_with("socket:["), "{pool}");
    // On a busy computer a worker may come to its next connection before it has slept.
    assert!((40..=80).contains(&pool["requests"].as_u64().unwrap()), "{pool}");
}
