//! Parts of loaders that tests of this crate start, and how they start them.

// Each test that includes this uses some of it.
#![allow(dead_code)]

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;

use super::assembler::{self, *};
use super::types;
use warmcore_kernel::Setup;
use warmcore_loader::{Capture, CaptureRequest, LoaderError, MachineFiles, Paths, TargetKernel, capture, start};
use warmcore_options::MemoryChoice;
use warmcore_schedulers::{Bytecode, bytecode_trial};
use warmcore_topology::Machine;
use warmcore_trace::{Event, Outcome};
use warmcore_workload::{Options, Workload};

/// Kernel functions that programs here call, numbered by the type information.
pub const FUNCTIONS: [&str; 6] = [
    "scx_bpf_create_dsq",
    "scx_bpf_select_cpu_dfl",
    "scx_bpf_dsq_insert",
    "scx_bpf_dsq_move_to_local",
    "bpf_of_tomorrow",
    "bpf_task_from_pid",
];

pub fn kfunc(name: &str) -> [u8; 8] {
    let number = types::kernel(&FUNCTIONS).1[FUNCTIONS.iter().position(|&known| known == name).unwrap()];
    code(0x85, 0, 2, 0, number)
}

/// `dst = value`, 64 bits.
pub fn wide(dst: u8, value: u64) -> [[u8; 8]; 2] {
    [code(0x18, dst, 0, 0, value as i32), code(0, 0, 0, 0, (value >> 32) as i32)]
}

pub const SLICE: i32 = 20_000_000;
pub const LOCAL: u64 = 1 << 63 | 2;
pub const SHARED: i32 = 0;

// ---- Parts of loaders. Each loader is a test that is ignored; other tests start it as a program, before a kernel that is not there.

pub fn bpf(command: i32, attributes: &[u8]) -> i64 {
    // SAFETY: the kernel, or who stands for it, reads as many bytes.
    unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), attributes.len()) }
}

pub fn put(attributes: &mut [u8], at: usize, bytes: &[u8]) {
    attributes[at..at + bytes.len()].copy_from_slice(bytes);
}

pub fn create_map(kind: u32, key: u32, value: u32, entries: u32) -> i64 {
    let mut attributes = [0; 128];
    for (index, number) in [kind, key, value, entries].into_iter().enumerate() {
        put(&mut attributes, index * 4, &number.to_le_bytes());
    }
    put(&mut attributes, 28, b"map");
    bpf(0, &attributes)
}

pub fn element(command: i32, map: i64, key: &[u8], value: &mut [u8]) -> i64 {
    let mut attributes = [0; 128];
    put(&mut attributes, 0, &(map as u32).to_le_bytes());
    put(&mut attributes, 8, &(key.as_ptr() as u64).to_le_bytes());
    put(&mut attributes, 16, &(value.as_mut_ptr() as u64).to_le_bytes());
    bpf(command, &attributes)
}

pub fn load_program(kind: u32, name: &str, program: &[[u8; 8]]) -> i64 {
    let bytes = program.concat();
    let mut attributes = [0; 128];
    put(&mut attributes, 0, &kind.to_le_bytes());
    put(&mut attributes, 4, &(program.len() as u32).to_le_bytes());
    put(&mut attributes, 8, &(bytes.as_ptr() as u64).to_le_bytes());
    put(&mut attributes, 48, name.as_bytes());
    bpf(5, &attributes)
}

/// `dst = a map`.
pub fn map_of(dst: u8, map: i64) -> [[u8; 8]; 2] {
    [code(0x18, dst, 1, 0, map as i32), code(0, 0, 0, 0, 0)]
}

/// `r0 = bpf_map_lookup_elem(map, the word at r10 - 4)`; the program ends if there is nothing.
pub fn look_up(map: i64) -> Vec<[u8; 8]> {
    let mut program = map_of(1, map).to_vec();
    program.extend([mov(2, 10), add_imm(2, -4), helper(1), code(0x55, 0, 0, 1, 0), exit()]);
    program
}

/// A number of a map.
pub fn value(map: i64, index: u32) -> u64 {
    let mut value = [0; 8];
    assert_eq!(element(1, map, &index.to_le_bytes(), &mut value), 0);
    u64::from_le_bytes(value)
}

/// Opens an event of performance, without a group.
pub fn perf_event(attributes: &[u8; 128], pid: i32, cpu: i32) -> Result<File, i32> {
    // SAFETY: the kernel, or who stands for it, reads the structure; what is got is owned.
    unsafe {
        let descriptor = libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), pid, cpu, -1, 0);
        if descriptor < 0 {
            Err(std::io::Error::last_os_error().raw_os_error().unwrap())
        } else {
            Ok(File::from_raw_fd(descriptor as i32))
        }
    }
}

/// Asks something of each event.
pub fn request(events: &[File], request: u64) {
    for event in events {
        // SAFETY: a request without an argument.
        assert_eq!(unsafe { libc::ioctl(event.as_raw_fd(), request, 0) }, 0);
    }
}

/// Count, time enabled, time running.
pub fn read_event(mut event: &File) -> [u64; 3] {
    let mut bytes = [0; 24];
    assert_eq!(event.read(&mut bytes).unwrap(), 24);
    [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

/// Attaches a scheduler of these programs.
pub fn attach(programs: &[(usize, &str, Vec<[u8; 8]>)]) {
    // As long as the loader runs.
    std::mem::forget(try_attach(programs).unwrap());
}

/// The same; gives the descriptor of the link that keeps it attached.
pub fn try_attach(programs: &[(usize, &str, Vec<[u8; 8]>)]) -> std::io::Result<OwnedFd> {
    let mut value = vec![0; 256];
    for (offset, name, program) in programs {
        let descriptor = load_program(27, name, program);
        assert!(descriptor > 0, "{name}: {}", std::io::Error::last_os_error());
        put(&mut value, 64 + offset, &descriptor.to_le_bytes());
    }
    put(&mut value, 64 + 48, &5000u32.to_le_bytes());
    put(&mut value, 64 + 56, b"test\0");
    let map = create_map(26, 4, 256, 1);
    assert_eq!(element(2, map, &[0; 4], &mut value), 0);
    let mut attributes = [0; 64];
    put(&mut attributes, 0, &(map as u32).to_le_bytes());
    put(&mut attributes, 8, &44u32.to_le_bytes());
    // A loader that is not to go on ends in this call.
    let link = bpf(28, &attributes);
    if link < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the kernel, or who stands for it, has just given it.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
}

pub fn init() -> (usize, &'static str, Vec<[u8; 8]>) {
    (24, "init", vec![mov_imm(1, SHARED), mov_imm(2, -1), kfunc("scx_bpf_create_dsq"), exit()])
}

pub fn select_cpu() -> (usize, &'static str, Vec<[u8; 8]>) {
    let [low, high] = wide(2, LOCAL);
    let program = vec![
        load_double(6, 1, 0),
        load_double(2, 1, 8),
        load_double(3, 1, 16),
        store_imm(8, 10, -8, 0),
        mov(1, 6),
        mov(4, 10),
        add_imm(4, -8),
        kfunc("scx_bpf_select_cpu_dfl"),
        mov(7, 0),
        assembler::load(1, 1, 10, -8),
        code(0x15, 1, 0, 6, 0),
        mov(1, 6),
        low,
        high,
        mov_imm(3, SLICE),
        mov_imm(4, 0),
        kfunc("scx_bpf_dsq_insert"),
        mov(0, 7),
        exit(),
    ];
    (0, "select_cpu", program)
}

pub fn load_double(dst: u8, src: u8, offset: i16) -> [u8; 8] {
    assembler::load(8, dst, src, offset)
}

pub fn enqueue() -> (usize, &'static str, Vec<[u8; 8]>) {
    let program = vec![
        load_double(4, 1, 8),
        load_double(1, 1, 0),
        mov_imm(2, SHARED),
        mov_imm(3, SLICE),
        kfunc("scx_bpf_dsq_insert"),
        exit(),
    ];
    (8, "enqueue", program)
}

pub fn dispatch() -> (usize, &'static str, Vec<[u8; 8]>) {
    (16, "dispatch", vec![mov_imm(1, SHARED), kfunc("scx_bpf_dsq_move_to_local"), exit()])
}

pub fn machine() -> Machine {
    warmcore_topology::resolve("1s1n2l4c1t").unwrap()
}

pub fn workload(text: &str) -> Workload {
    let no_files = |_: &str| Err(std::io::ErrorKind::NotFound.into());
    warmcore_workload::resolve(text, &Options::default(), no_files).unwrap()
}

/// Arguments with which this test program is a loader.
pub fn arguments_for(loader: &str) -> [String; 5] {
    ["--ignored", "--exact", "--nocapture", "--test-threads=1", loader].map(str::to_owned)
}

pub fn run_loader(loader: &str, timeout: Duration) -> Result<Capture, LoaderError> {
    run_loader_with(loader, timeout, Paths::default())
}

pub fn run_loader_with(loader: &str, timeout: Duration, paths: Paths) -> Result<Capture, LoaderError> {
    let kernel = TargetKernel::new("7.2.0-test", "CONFIG_HZ=250\n", &types::kernel(&FUNCTIONS).0).unwrap();
    let program = std::env::current_exe().unwrap();
    let arguments = arguments_for(loader);
    let machine = machine();
    let files = MachineFiles::new(&machine, &kernel).unwrap();
    capture(&CaptureRequest {
        program: &program,
        arguments: &arguments,
        machine: &machine,
        kernel: &kernel,
        timeout,
        files: files.path(),
        paths,
        counts_memory: true,
    })
}

/// Runs a workload under the scheduler of a loader that goes on, in no time of its own: the outcome, the events, and what it printed.
pub fn run_live(loader: &str, workload: &str, memory: MemoryChoice) -> (Outcome, Vec<Event>, String) {
    let kernel = TargetKernel::new("7.2.0-test", "CONFIG_HZ=250\n", &types::kernel(&FUNCTIONS).0).unwrap();
    let (program, arguments, machine) = (std::env::current_exe().unwrap(), arguments_for(loader), machine());
    let workload = warmcore_workload::from_rtapp("work", workload, &Options::default()).unwrap();
    let files = MachineFiles::new(&machine, &kernel).unwrap();
    let attached = start(
        &CaptureRequest {
            program: &program,
            arguments: &arguments,
            machine: &machine,
            kernel: &kernel,
            timeout: Duration::from_secs(60),
            files: files.path(),
            paths: Paths::default(),
            counts_memory: memory != MemoryChoice::None,
        },
        || Ok(()),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let output = Rc::clone(&attached.output);
    let scheduler = Bytecode::live(&attached.capture.object, attached.host, Box::new(attached.loader), 7, false);
    let mut setup = Setup::new(&machine, &workload, 7).unwrap();
    setup.options.memory = memory;
    let mut events: Vec<Event> = Vec::new();
    let result = bytecode_trial(scheduler, &setup, Some(&mut events));
    let words = output.borrow_mut().text();
    let (outcome, _) = result.unwrap_or_else(|error| panic!("{error}\n{words}"));
    (outcome, events, words)
}

/// The numbers that follow a word in what was printed.
pub fn numbers(words: &str, word: &str) -> Vec<f64> {
    let at = words.find(&format!("{word} ")).unwrap_or_else(|| panic!("{word} in {words}"));
    let rest = words[at + word.len()..].lines().next().unwrap();
    rest.split_whitespace().map_while(|number| number.parse().ok()).collect()
}

/// Whether this computer lets system calls be answered, or why not; a container may forbid it.
pub fn can_answer() -> &'static Result<(), String> {
    static CAN: OnceLock<Result<(), String>> = OnceLock::new();
    CAN.get_or_init(|| {
        let forbidden = match run_loader("loader_that_dies", Duration::from_secs(60)) {
            Err(error @ LoaderError::Forbidden { .. }) => error,
            _ => return Ok(()),
        };
        let sentence = forbidden.to_string();
        assert!(sentence.contains("system calls of") && sentence.contains("cannot be answered here"), "{sentence}");
        Err(sentence)
    })
}
